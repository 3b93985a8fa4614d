// The owner of a device's interface, and what every backend's packed weights have in common.
#include "fourfold/backend.h"

#include <utility>

#include "backend/backend_interface.h"
#include "core/check.h"

namespace fourfold {

Backend::Backend(std::unique_ptr<BackendInterface> interface) : interface_(std::move(interface)) {
  check(interface_ != nullptr, ErrorCode::usage, "Backend: interface is null; pass the object of a device");
}
Backend::~Backend() = default;

const Device& Backend::device() const noexcept { return interface_->device(); }

Probes measure_probes(Backend& backend) { return backend.interface().probe(); }

std::uint64_t ExpertWeights::bytes() const noexcept { return packed_ ? packed_->bytes() : 0; }

bool same_layout(const Caps& a, const Caps& b) noexcept {
  return a.experts == b.experts && a.hidden == b.hidden && a.intermediate == b.intermediate && a.format == b.format &&
         a.activation.gated() == b.activation.gated() && a.gate_up_bias == b.gate_up_bias && a.down_bias == b.down_bias;
}

}  // namespace fourfold
