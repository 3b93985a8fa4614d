// The first projection and the activation on tensor cores, weights as the wide operand, tokens as the narrow one.
//   activated[position][i] = round(act(w * (W_gate[e][i] . x[token]) + b_gate, w * (W_up[e][i] . x[token]) + b_up))
// with w = 1 unless the routing weight goes on the input side. Macros: FORMAT, DTYPE; SPANS = 64 / scale_span; ROW_TILES
// tiles of 16 rows and at most 8 * TOKEN_STEPS tokens an item, STAGES of a warp's ring.
// Grid: any number of blocks; each takes every gridDim.x-th item. Shared memory: kSumBytes + kTileWarps * STAGES *
// stage_bytes.
#include "device/gate_up_body.cuh"

/// Writes activated[position][0 .. I) for every live position and nothing else.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kTileThreads, TOKEN_STEPS * ROW_TILES <= 4 ? 2 : 1)
    gate_up_tiles(const __grid_constant__ fourfold::kernels::GateUpTilesParams p) {
  using namespace fourfold::kernels;
  gate_up_tiles_body<Format::FORMAT, Float16::DTYPE, SPANS, ROW_TILES, TOKEN_STEPS, STAGES>(p);
}
