// One launch after the other, as the plan's band lists them; kernels/moe says what each computes.
#include "cuda/run_moe.h"

#include "cuda/moe_params.h"
#include "plan/cuda_plan.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {
namespace {

template <class Params>
void enqueue(const BoundMoe& bound, const CudaLaunch& launch, const Params& params) {
  const CudaGrid grid = cuda_grid(bound.plan->caps, launch, bound.tokens);
  static_cast<const CudaBoundKernels&>(*bound.kernels)
      .kernels[static_cast<std::size_t>(launch.spec)]
      .launch({static_cast<std::uint32_t>(grid.x), static_cast<std::uint32_t>(grid.y)},
              static_cast<CUstream>(bound.stream.handle), params,
              static_cast<std::uint32_t>(launch.shared_bytes(bound.tokens)));
}

}  // namespace

void run_moe(const BoundMoe& bound) {
  const auto band = static_cast<std::size_t>(bound.band - bound.plan->bands.data());
  for (const CudaLaunch& launch : bound.plan->cuda_bands[band].launches) {
    switch (launch.kernel) {
      case CudaKernel::route_resolve:
        enqueue(bound, launch, route_resolve_params(bound));
        break;
      case CudaKernel::route_sort:
        enqueue(bound, launch, route_sort_params(bound));
        break;
      case CudaKernel::gate_up_naive:
        enqueue(bound, launch, gate_up_params(bound));
        break;
      case CudaKernel::down_naive:
        enqueue(bound, launch, down_params(bound));
        break;
      case CudaKernel::route_tiles:
        enqueue(bound, launch, route_tiles_params(bound, launch));
        break;
      case CudaKernel::gate_up_tiles:
        enqueue(bound, launch, gate_up_tiles_params(bound));
        break;
      case CudaKernel::down_sums:
      case CudaKernel::down_rows:
        enqueue(bound, launch, down_tiles_params(bound, launch));
        break;
      case CudaKernel::combine_rows:
        enqueue(bound, launch, combine_rows_params(bound, launch));
        break;
    }
  }
}

}  // namespace fourfold::cuda
