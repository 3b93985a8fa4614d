// route_resolve, route_sort, gate_up with its activation, down with the weighted sum: kernels/moe says what each does.
#include "cuda/run_moe.h"

#include "cuda/moe_params.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {
namespace {

template <class Params>
void launch(const BoundMoe& bound, CudaStep step, const Params& params) {
  const CudaGrid grid = cuda_grid(bound.plan->caps, step, bound.tokens);
  static_cast<const CudaBoundKernels&>(*bound.kernels)
      .steps[step]
      .launch({static_cast<std::uint32_t>(grid.x), static_cast<std::uint32_t>(grid.y)},
              static_cast<CUstream>(bound.stream.handle), params);
}

}  // namespace

void run_moe(const BoundMoe& bound) {
  launch(bound, kCudaRouteResolve, route_resolve_params(bound));
  launch(bound, kCudaRouteSort, route_sort_params(bound));
  launch(bound, kCudaGateUp, gate_up_params(bound));
  launch(bound, kCudaDown, down_params(bound));
}

}  // namespace fourfold::cuda
