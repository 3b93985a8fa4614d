// Routing, step one: every id is checked before it becomes an index and turned into a local expert.
// Grid: ceil(R / blockDim.x) blocks; one thread a route.
#include "params/moe_params.h"

namespace fourfold::kernels {

constexpr Int64 kNone = -1;
constexpr Int64 kInvalid = -2;

/// Local expert of a route, kNone (adds zero) or kInvalid (adds zero and is counted).
__device__ inline Int64 local_expert(const RouteResolveParams& p, Int64 route) {
  const Int64 id =
      p.ids_are_64_bit ? static_cast<const Int64*>(p.topk_ids)[route] : static_cast<const Int32*>(p.topk_ids)[route];
  if (id == -1) return kNone;
  if (id < 0 || id >= p.id_count) return kInvalid;
  const Int64 local = p.expert_map ? p.expert_map[id] : id;
  if (local == -1) return kNone;
  return local < 0 || local >= p.experts ? kInvalid : local;
}

}  // namespace fourfold::kernels

/// Writes route_expert[R] and adds the number of invalid ids to invalid_ids. An integer sum: the order of the atomics
/// does not matter.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kNaiveThreads, fourfold::kernels::kNaiveBlocks)
    route_resolve(const fourfold::kernels::RouteResolveParams p) {
  using namespace fourfold::kernels;
  const Int64 route = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (route >= p.routes) return;
  const Int64 expert = local_expert(p, route);
  p.route_expert[route] = expert < 0 ? -1 : static_cast<Int32>(expert);
  if (expert == kInvalid && p.invalid_ids) atomicAdd(p.invalid_ids, 1u);
}
