// The second projection and the weighted sum over a token's slots for few tokens: a block owns the columns of a slice,
// keeps the fp32 sums of all tokens in shared memory and adds expert after expert. No partial sum leaves the block.
//   out[token][h] = round(sum over the token's positions, ascending, of w * (W_down[e][h] . activated[position] + b))
// Macros: FORMAT, DTYPE; SPANS = 64 / scale_span; ROW_TILES tiles of 16 columns a slice, at most 8 * TOKEN_STEPS
// tokens a tile, STAGES of a warp's ring.
// Grid: any number of blocks; each takes every gridDim.x-th slice. Shared memory: kTurnBytes, T * (16 * ROW_TILES +
// 8) * 4, and kDownSumsWarps * STAGES * stage_bytes.
#include "device/down_body.cuh"

/// Writes out[T][H]; a row without a live expert is zeros.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kDownSumsThreads, 1)
    down_sums(const __grid_constant__ fourfold::kernels::DownTilesParams p) {
  using namespace fourfold::kernels;
  down_sums_body<Format::FORMAT, Float16::DTYPE, SPANS, ROW_TILES, TOKEN_STEPS, STAGES>(p);
}
