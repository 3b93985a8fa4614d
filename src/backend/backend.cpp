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

void freeze(Backend& backend) { backend.interface().freeze(); }

KernelCounters kernel_counters(const Backend& backend) { return backend.interface().kernel_counters(); }

Stream own_stream(Backend& backend) noexcept { return backend.interface().stream(); }

void synchronize(Backend& backend, Stream stream) { backend.interface().synchronize(stream); }

namespace {

void check_sizes(const char* call, std::size_t device, std::size_t host) {
  check(device == host, ErrorCode::usage, "{}: {} bytes on the device, {} on the host; pass spans of one size", call,
        device, host);
}

}  // namespace

void copy_to_device(Backend& backend, std::span<std::byte> device, std::span<const std::byte> host) {
  check_sizes("copy_to_device", device.size(), host.size());
  if (!host.empty()) backend.interface().copy_to_device(device.data(), host.data(), host.size());
}

void copy_to_host(Backend& backend, std::span<std::byte> host, std::span<const std::byte> device) {
  check_sizes("copy_to_host", device.size(), host.size());
  if (!host.empty()) backend.interface().copy_to_host(host.data(), device.data(), host.size());
}

void fill(Backend& backend, std::span<std::byte> device, unsigned char value) {
  if (!device.empty()) backend.interface().fill(device.data(), value, device.size());
}

std::uint64_t ExpertWeights::bytes() const noexcept { return packed_ ? packed_->bytes() : 0; }

bool same_layout(const Caps& a, const Caps& b) noexcept {
  return a.experts == b.experts && a.hidden == b.hidden && a.intermediate == b.intermediate && a.format == b.format &&
         a.activation.gated() == b.activation.gated() && a.gate_up_bias == b.gate_up_bias && a.down_bias == b.down_bias;
}

}  // namespace fourfold
