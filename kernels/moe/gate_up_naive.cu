// The first projection and the activation, one thread an element: the readable twin of every gate/up kernel.
//   activated[route][i] = round(act(w * (W_gate[e][i] . x[token]) + b_gate, w * (W_up[e][i] . x[token]) + b_up))
// with w = 1 unless the routing weight goes on the input side. Compiled with the macros FORMAT, DTYPE and ACTIVATION.
// Grid: x covers the I columns, y any number of blocks that share the live routes.
#include "device/activation.cuh"
#include "device/project.cuh"
#include "params/moe_params.h"

namespace fourfold::kernels {

template <Format kFormat, Float16 kFloat>
__device__ inline float first_projection(const GateUpParams& p, Int64 expert, Int64 row, Int32 part, Int64 route) {
  const UInt16* x = p.x + route / p.top_k * p.hidden;  // [H] of the route's token
  float value = project<kFormat, kFloat>(p.gate_up, expert, row, part, x);
  if (p.router_weight_on_input) value = __fmul_rn(p.topk_weights[route], value);
  return __fadd_rn(value, bias_value(p.gate_up, expert, row));
}

template <Format kFormat, Float16 kFloat, Activation kActivation>
__device__ inline void gate_up(const GateUpParams& p) {
  const Int64 column = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= p.intermediate) return;
  // How many routes are live is known on the device only: the same launch serves any routing.
  const Int64 live = p.expert_offsets[p.experts];
  for (Int64 position = blockIdx.y; position < live; position += gridDim.y) {
    const Int64 route = p.sorted_routes[position];
    const Int64 expert = p.route_expert[route];
    float gate = 0.0f, up = 0.0f;
    if (kActivation == Activation::relu2) {
      up = first_projection<kFormat, kFloat>(p, expert, column, 0, route);
    } else {
      gate = first_projection<kFormat, kFloat>(p, expert, column, 0, route);
      up = first_projection<kFormat, kFloat>(p, expert, p.intermediate + column, 1, route);
    }
    p.activated[route * p.intermediate + column] = narrow<kFloat>(activate<kActivation>(p, gate, up));
  }
}

}  // namespace fourfold::kernels

/// Writes activated[route][0 .. I) for every live route and nothing else.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kNaiveThreads, fourfold::kernels::kNaiveBlocks)
    gate_up_naive(const fourfold::kernels::GateUpParams p) {
  using namespace fourfold::kernels;
  gate_up<Format::FORMAT, Float16::DTYPE, Activation::ACTIVATION>(p);
}
