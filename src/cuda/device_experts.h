// A packed layer in the memory of one GPU.
#pragma once

#include <cstdint>

#include "cuda/handles.h"
#include "cuda/pack_experts.h"

namespace fourfold::cuda {

/// Owns the memory. Immutable.
class DeviceExperts final : public CudaExperts {
 public:
  /// As BackendInterface::pack_experts. Legal while others capture.
  DeviceExperts(const PlanData& plan, ExpertSource& source, const ContextRef& context);
  /// A layer of plan.caps.experts experts that are those of `few` in turn, copied on the device: expert e is expert
  /// (e + first) % few.caps().experts. For measurements, where contents do not matter but places do. Done on return.
  /// Throws usage when `few` differs in more than its number of experts, and for weights of the naive kernels.
  DeviceExperts(const PlanData& plan, const DeviceExperts& few, std::int64_t first);
  int ordinal() const noexcept { return memory_.context()->ordinal(); }

 private:
  DeviceMemory memory_;
  UnitLayer units_;  // of the tile family
};

}  // namespace fourfold::cuda
