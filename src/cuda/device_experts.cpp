// Packs a layer through page-locked memory, or repeats one that is packed.
#include "cuda/device_experts.h"

#include <array>

#include "core/check.h"
#include "cuda/capture_guard.h"

namespace fourfold::cuda {

DeviceExperts::DeviceExperts(const PlanData& plan, ExpertSource& source, const ContextRef& context)
    : CudaExperts(plan.caps) {
  const ScopedRelaxedCapture relaxed(context->driver());  // others may capture while weights are loaded
  const Stream stream = Stream::create(context);
  HostMemory staging;
  const PackTarget target{[&](std::uint64_t layer_bytes, std::uint64_t expert_bytes) {
                            memory_ = DeviceMemory::allocate(context, layer_bytes);
                            staging = HostMemory::allocate(context, expert_bytes);
                            return staging.span();
                          },
                          [&](std::uint64_t offset, std::span<const std::byte> bytes) {
                            copy_to_device(*context, stream.value(), memory_.data() + offset, bytes);
                          },
                          [&] { stream.synchronize(); }};
  // Packing allocates: the base is known only after it.
  if (plan.cuda_family == CudaFamily::naive) {
    const PackedLayer layer = pack_layer(plan.caps, source, target);
    set_layer(layer, memory_.data());
  } else {
    units_ = pack_unit_layer(plan.caps, source, target);
    set_layer(units_, memory_.data());
  }
}

DeviceExperts::DeviceExperts(const PlanData& plan, const DeviceExperts& few, std::int64_t first)
    : CudaExperts(plan.caps) {
  const std::int64_t experts = few.caps().experts;
  Caps caps_of_few = plan.caps;
  caps_of_few.experts = experts;
  check(plan.cuda_family == CudaFamily::tiles && few.family() == CudaFamily::tiles, ErrorCode::usage,
        "repeated experts: only weights of the tensor-core kernels can be repeated");
  check(same_layout(caps_of_few, few.caps()) && caps_of_few.activation_dtype == few.caps().activation_dtype,
        ErrorCode::usage, "repeated experts: the layer and what it repeats differ in more than their expert counts");
  const ContextRef context = few.memory_.context();
  const ScopedRelaxedCapture relaxed(context->driver());
  const Stream stream = Stream::create(context);
  units_ = few.units_;
  units_.layout =
      cuda_unit_layout(plan.caps, {few.units_.layout.gate_up.scale_bytes, few.units_.layout.down.scale_bytes});
  memory_ = DeviceMemory::allocate(context, static_cast<std::uint64_t>(units_.layout.total_bytes));
  const auto copy = [&](std::int64_t to, std::int64_t from, std::int64_t bytes, std::int64_t expert) {
    if (to < 0) return;
    copy_on_device(*context, stream.value(), memory_.data() + to + expert * bytes,
                   {few.memory_.data() + from + (expert + first) % experts * bytes, static_cast<std::size_t>(bytes)});
  };
  const auto copy_matrix = [&](const CudaUnitMatrix& to, const CudaUnitMatrix& from, std::int64_t expert) {
    copy(to.units, from.units, to.expert_bytes(), expert);
    copy(to.global, from.global, to.parts * 4, expert);
    copy(to.bias, from.bias, to.rows * 4, expert);
  };
  for (std::int64_t expert = 0; expert < plan.caps.experts; ++expert) {
    copy_matrix(units_.layout.gate_up, few.units_.layout.gate_up, expert);
    copy_matrix(units_.layout.down, few.units_.layout.down, expert);
  }
  stream.synchronize();
  set_layer(units_, memory_.data());
}

}  // namespace fourfold::cuda
