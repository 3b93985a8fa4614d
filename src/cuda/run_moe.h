// The CUDA run: the launches of the plan's band on the caller's stream.
#pragma once

#include <vector>

#include "backend/backend_interface.h"
#include "cuda/kernel.h"

namespace fourfold::cuda {

/// The kernels of one plan, ready to launch, as PlanData::kernel_specs.
class CudaBoundKernels final : public BoundKernels {
 public:
  std::vector<Kernel> kernels;
};

/// Enqueues a bound call that has tokens. Only launches: allocates, loads, waits for and looks up nothing; legal under
/// capture; thread-safe. `bound.kernels` is CudaBoundKernels. Throws internal with the driver's reason when a launch
/// fails.
void run_moe(const BoundMoe& bound);

}  // namespace fourfold::cuda
