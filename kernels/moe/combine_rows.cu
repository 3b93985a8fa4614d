// The weighted sum over a token's slots, one panel of columns, after down_rows.
//   out[token][panel_begin + c] = round(sum over the token's positions, ascending, of w * rows[position][c])
// The order and the operations are those of down_sums: same bits. Macro: DTYPE.
// Grid: any number of blocks of kTileThreads threads; each takes every gridDim.x-th token.
#include "device/float16.cuh"
#include "device/ptx_async.cuh"
#include "params/tile_params.h"

namespace fourfold::kernels {

constexpr Int32 kMaxTopK = 64;

template <Float16 kFloat>
__device__ inline void combine(const CombineRowsParams& p) {
  __shared__ Int32 position[kMaxTopK], ordered[kMaxTopK];
  __shared__ float weight[kMaxTopK];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const Int32 columns = min(p.panel_columns, p.hidden - p.panel_begin), slot = threadIdx.x;
  for (Int64 token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    const bool mine = slot < p.top_k;
    const Int32 own = mine ? p.route_position[token * p.top_k + slot] : -1;
    if (mine) position[slot] = own;
    __syncthreads();
    Int32 rank = 0, live = 0;  // positions are distinct
    for (Int32 i = 0; i < p.top_k; ++i) {
      live += position[i] >= 0;
      rank += position[i] >= 0 && position[i] < own;
    }
    if (own >= 0) {
      ordered[rank] = own;
      weight[rank] = p.router_weight_on_input ? 1.0f : p.topk_weights[token * p.top_k + slot];
    }
    __syncthreads();
    for (Int32 column = threadIdx.x; column < columns; column += blockDim.x) {
      float sum = 0.0f;
      for (Int32 i = 0; i < live; ++i)
        sum = __fmaf_rn(weight[i], p.rows[static_cast<Int64>(ordered[i]) * p.panel_columns + column], sum);
      p.out[token * p.hidden + p.panel_begin + column] = narrow<kFloat>(sum);
    }
    __syncthreads();
  }
}

}  // namespace fourfold::kernels

/// Writes columns panel_begin .. of out[T][H].
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kTileThreads)
    combine_rows(const __grid_constant__ fourfold::kernels::CombineRowsParams p) {
  using namespace fourfold::kernels;
  combine<Float16::DTYPE>(p);
}
