// Routing in one launch of one block: resolve, count, scan, scatter, and the list of token tiles.
// Order: expert, token, slot, by construction: routes are placed in rounds, in a round the warps take turns, in a turn
// a lane's place follows from the lanes below it that have the same expert.
// Grid: 1 block of kRouteThreads threads. Shared memory: 8 * kMaxRouteExperts bytes and a few words, static.
#include "device/ptx_async.cuh"
#include "params/tile_params.h"

namespace fourfold::kernels {

constexpr Int32 kRouteWarps = kRouteThreads / 32;
constexpr Int32 kExpertsPerThread = kMaxRouteExperts / kRouteThreads;
constexpr UInt32 kAllLanes = 0xffffffffu;

/// Local expert of a route, or -1; `invalid` for an id that is out of range.
__device__ inline Int32 resolve(const RouteTilesParams& p, Int64 route, bool& invalid) {
  const Int64 id =
      p.ids_are_64_bit ? static_cast<const Int64*>(p.topk_ids)[route] : static_cast<const Int32*>(p.topk_ids)[route];
  invalid = id < -1 || id >= p.id_count;
  if (id == -1 || invalid) return -1;
  const Int64 local = p.expert_map ? p.expert_map[id] : id;
  invalid = local < -1 || local >= p.experts;
  return invalid ? -1 : static_cast<Int32>(local);
}

/// Sum over the lower lanes, without this one.
__device__ inline UInt32 sum_of_lower_lanes(UInt32 value, UInt32 lane) {
  UInt32 sum = value;
#pragma unroll
  for (UInt32 step = 1; step < 32; step *= 2) {
    const UInt32 lower = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += lower;
  }
  return sum - value;
}

/// Sum over the lower threads of the block, without this one; `total` is the sum of all. scratch: [kRouteWarps].
__device__ inline UInt32 sum_of_lower_threads(UInt32 value, UInt32* scratch, UInt32& total) {
  const UInt32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const UInt32 below = sum_of_lower_lanes(value, lane);
  if (lane == 31) scratch[warp] = below + value;
  __syncthreads();
  const UInt32 of_warp = scratch[lane];
  const UInt32 warps_below = sum_of_lower_lanes(of_warp, lane);
  total = __shfl_sync(kAllLanes, warps_below + of_warp, 31);
  __syncthreads();
  return __shfl_sync(kAllLanes, warps_below, static_cast<int>(warp)) + below;
}

__device__ inline UInt32 tiles_of(UInt32 routes, UInt32 token_tile) { return (routes + token_tile - 1) / token_tile; }

/// Every live route is added to its expert's count; the number of invalid ids to *p.invalid_ids.
__device__ inline void count_routes(const RouteTilesParams& p, UInt32* next) {
  UInt32 invalid_ids = 0;
  for (Int64 route = threadIdx.x; route < p.routes; route += kRouteThreads) {
    bool invalid;
    const Int32 expert = resolve(p, route, invalid);
    if (expert >= 0) atomicAdd(next + expert, 1u);
    invalid_ids += invalid;
  }
  if (p.invalid_ids && invalid_ids) atomicAdd(p.invalid_ids, invalid_ids);
}

/// Turns counts into first positions, and lists the tiles. An expert's routes are divided evenly: n = ceil(count /
/// token_tile) tiles of ceil(count / n) tokens, rounded up to kTokenStep. Rounding cannot change n: the size stays
/// between count / n and token_tile.
__device__ inline void scan_experts(const RouteTilesParams& p, UInt32* next, UInt32* scratch) {
  UInt32 count[kExpertsPerThread], routes = 0, tiles = 0;
#pragma unroll
  for (Int32 i = 0; i < kExpertsPerThread; ++i) {
    count[i] = next[threadIdx.x * kExpertsPerThread + i];
    routes += count[i];
    tiles += tiles_of(count[i], p.token_tile);
  }
  UInt32 all_routes, all_tiles;
  UInt32 position = sum_of_lower_threads(routes, scratch, all_routes);
  UInt32 tile = sum_of_lower_threads(tiles, scratch, all_tiles);
#pragma unroll
  for (Int32 i = 0; i < kExpertsPerThread; ++i) {
    const Int32 expert = threadIdx.x * kExpertsPerThread + i;
    next[expert] = position;
    const UInt32 parts = tiles_of(count[i], p.token_tile);
    const UInt32 even = parts == 0 ? 0 : (count[i] + parts - 1) / parts;
    const UInt32 size = (even + kTokenStep - 1) / kTokenStep * kTokenStep;
    for (UInt32 done = 0; done < count[i]; done += size)
      p.tiles[tile++] = {expert, static_cast<Int32>(position + done), static_cast<Int32>(min(size, count[i] - done)), 0};
    position += count[i];
  }
  if (threadIdx.x == 0) {
    p.counts[0] = static_cast<Int32>(all_tiles);
    p.counts[1] = static_cast<Int32>(all_routes);
  }
}

/// A round: kRouteThreads routes find their positions.
__device__ inline void place_routes(const RouteTilesParams& p, Int64 first, UInt32* next) {
  const UInt32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Int64 route = first + threadIdx.x;
  bool invalid;
  const Int32 expert = route < p.routes ? resolve(p, route, invalid) : -1;
  const UInt32 same = __match_any_sync(kAllLanes, expert);
  const UInt32 rank = __popc(same & ((1u << lane) - 1u));
  const UInt32 live = __ballot_sync(kAllLanes, expert >= 0);
  const Int64 rest = p.routes - first;
  const UInt32 turns = rest >= kRouteThreads ? kRouteWarps : static_cast<UInt32>((rest + 31) / 32);
  UInt32 position = 0;
  for (UInt32 turn = 0; turn < turns; ++turn) {
    if (turn == warp && expert >= 0) {
      position = next[expert] + rank;
      __syncwarp(live);  // read by all before one writes
      if (rank == 0) next[expert] += __popc(same);
    }
    __syncthreads();
  }
  if (route >= p.routes) return;
  p.route_position[route] = expert >= 0 ? static_cast<Int32>(position) : -1;
  if (expert >= 0) p.sorted_routes[position] = static_cast<Int32>(route);
}

}  // namespace fourfold::kernels

/// Writes sorted_routes[live], route_position[R], tiles[counts[0]] and counts[2]; adds to invalid_ids.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kRouteThreads, 1)
    route_tiles(const __grid_constant__ fourfold::kernels::RouteTilesParams p) {
  using namespace fourfold::kernels;
  __shared__ UInt32 next[kMaxRouteExperts];  // routes of an expert, then the position of its next route
  __shared__ UInt32 scratch[kRouteWarps];
  for (Int32 expert = threadIdx.x; expert < kMaxRouteExperts; expert += kRouteThreads) next[expert] = 0;
  __syncthreads();
  wait_for_previous_kernel();
  let_next_kernel_start();
  count_routes(p, next);
  __syncthreads();
  scan_experts(p, next, scratch);
  __syncthreads();
  for (Int64 first = 0; first < p.routes; first += kRouteThreads) place_routes(p, first, next);
}
