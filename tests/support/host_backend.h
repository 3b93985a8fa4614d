// What backends of tests have in common: memory of the host, no kernels to resolve, no dense operations.
#pragma once

#include <cstdlib>
#include <cstring>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "plan/arena.h"

namespace support {

class HostBackend : public fourfold::BackendInterface {
 public:
  explicit HostBackend(fourfold::Device device) : device_(std::move(device)) {}
  const fourfold::Device& device() const noexcept override { return device_; }
  std::byte* allocate(std::uint64_t bytes) override {
    const std::uint64_t unit = fourfold::kSegmentAlignment;
    return static_cast<std::byte*>(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
  }
  void release(std::byte* data, std::uint64_t) noexcept override { std::free(data); }
  void warm_up(const fourfold::Plan&) override {}
  void resolve(fourfold::BoundMoe&) override {}
  void freeze() noexcept override {}
  fourfold::KernelCounters kernel_counters() const override { return {}; }
  // A GPU's binding wants an explicit stream; nobody looks behind this one.
  fourfold::Stream stream() noexcept override {
    return {device_.kind == fourfold::DeviceKind::cuda ? &stream_ : nullptr};
  }
  void synchronize(fourfold::Stream) override {}
  void copy_to_device(std::byte* device, const void* host, std::uint64_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void copy_to_host(void* host, const std::byte* device, std::uint64_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void fill(std::byte* device, unsigned char value, std::uint64_t bytes) override { std::memset(device, value, bytes); }
  fourfold::Ops& ops() override {
    fourfold::fail(fourfold::ErrorCode::unsupported, "this device of a test has no dense operations");
  }
  fourfold::Probes probe() override { return {}; }

 private:
  fourfold::Device device_;
  char stream_ = 0;
};

}  // namespace support
