// The CUDA run: four launches on the caller's stream.
#pragma once

#include <array>

#include "backend/backend_interface.h"
#include "cuda/kernel.h"
#include "plan/cuda_plan.h"

namespace fourfold::cuda {

/// The kernels of one plan, ready to launch, by CudaStep.
class CudaBoundKernels final : public BoundKernels {
 public:
  std::array<Kernel, 4> steps;
};

/// Enqueues a bound call that has tokens. Only launches: allocates, loads, waits for and looks up nothing; legal under
/// capture; thread-safe. `bound.kernels` is CudaBoundKernels. Throws internal with the driver's reason when a launch
/// fails.
void run_moe(const BoundMoe& bound);

}  // namespace fourfold::cuda
