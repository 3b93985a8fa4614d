// The second projection and the weighted sum over a token's slots, one thread an element: the readable twin of every
// down kernel.
//   out[token][h] = round(sum over live slots, ascending, of w[token][slot] * (W_down[e][h] . activated[route] +
//   b[e][h]))
// with w = 1 when the routing weight went on the input side. Compiled with the macros FORMAT and DTYPE.
// Grid: x covers the H columns, y any number of blocks that share the tokens.
#include "device/project.cuh"
#include "params/moe_params.h"

namespace fourfold::kernels {

template <Format kFormat, Float16 kFloat>
__device__ inline void down(const DownParams& p) {
  const Int64 column = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= p.hidden) return;
  for (Int64 token = blockIdx.y; token < p.tokens; token += gridDim.y) {
    float sum = 0.0f;
    for (Int32 slot = 0; slot < p.top_k; ++slot) {
      const Int64 route = token * p.top_k + slot;
      const Int64 expert = p.route_expert[route];
      if (expert < 0) continue;                                        // its weight, also a NaN, is not looked at
      const UInt16* activated = p.activated + route * p.intermediate;  // [I]
      const float value = project<kFormat, kFloat>(p.down, expert, column, 0, activated);
      const float weight = p.router_weight_on_input ? 1.0f : p.topk_weights[route];
      sum = __fmaf_rn(weight, __fadd_rn(value, bias_value(p.down, expert, column)), sum);
    }
    p.out[token * p.hidden + column] = narrow<kFloat>(sum);
  }
}

}  // namespace fourfold::kernels

/// Writes out[T][H]; a row without a live expert is zeros.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kNaiveThreads, fourfold::kernels::kNaiveBlocks)
    down_naive(const fourfold::kernels::DownParams p) {
  using namespace fourfold::kernels;
  down<Format::FORMAT, Float16::DTYPE>(p);
}
