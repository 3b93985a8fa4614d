// A workspace that owns its bytes, for callers who bring none.
#include <utility>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "fourfold/backend.h"

namespace fourfold {

Workspace Workspace::allocate(const Plan& plan, Backend& backend) { return allocate(plan.workspace_bytes(), backend); }

Workspace Workspace::allocate(std::uint64_t bytes, Backend& backend) {
  BackendInterface& interface = backend.interface();
  return Workspace(&interface, bytes == 0 ? nullptr : interface.allocate(bytes), bytes);
}

Workspace::~Workspace() {
  if (data_ != nullptr) interface_->release(data_, bytes_);
}

Workspace::Workspace(Workspace&& other) noexcept
    : interface_(other.interface_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(interface_, other.interface_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace fourfold
