// The second projection for many tokens, one panel of columns: fp32 rows by position, for combine_rows to add.
//   rows[position][column] = W_down[e][panel_begin + column] . activated[position] + b
// Macros as of down_sums. Grid: any number of blocks. Shared memory: kTileWarps * STAGES * stage_bytes.
#include "device/down_body.cuh"

/// Writes rows[live positions][panel_columns], columns below H only.
extern "C" __global__ void __launch_bounds__(fourfold::kernels::kTileThreads, TOKEN_STEPS * ROW_TILES <= 4 ? 2 : 1)
    down_rows(const __grid_constant__ fourfold::kernels::DownTilesParams p) {
  using namespace fourfold::kernels;
  down_rows_body<Format::FORMAT, Float16::DTYPE, SPANS, ROW_TILES, TOKEN_STEPS, STAGES>(p);
}
