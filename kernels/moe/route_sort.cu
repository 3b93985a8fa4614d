// Routing, step two: count, scan and scatter, each expert by itself. Where an expert begins is, by definition, the
// number of routes to smaller experts, so no thread waits for another and the order is that of the routes.
// Grid: ceil((E + 1) / blockDim.x) blocks; one thread an expert, one more for the end.
#include "params/moe_params.h"

/// Writes expert_offsets[E + 1] and sorted_routes[0 .. expert_offsets[E]). Work: R reads per expert.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kNaiveThreads, fourfold::kernels::kNaiveBlocks)
    route_sort(const fourfold::kernels::RouteSortParams p) {
  using namespace fourfold::kernels;
  const Int32 expert = static_cast<Int32>(blockIdx.x * blockDim.x + threadIdx.x);
  if (expert > p.experts) return;

  Int32 position = 0;
  for (Int64 route = 0; route < p.routes; ++route) {
    const Int32 other = p.route_expert[route];
    if (other >= 0 && other < expert) ++position;
  }
  p.expert_offsets[expert] = position;
  if (expert == p.experts) return;

  for (Int64 route = 0; route < p.routes; ++route)
    if (p.route_expert[route] == expert) p.sorted_routes[position++] = static_cast<Int32>(route);
}
