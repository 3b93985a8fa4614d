// Instances of the tile kernels, in the order in which they are tried; measured on an H200 (docs/performance.md).
#pragma once

#include <array>
#include <cstdint>

namespace fourfold {

/// Macros of gate_up_tiles, down_sums and down_rows.
struct CudaTileShape {
  int row_tiles = 0;    ///< tiles of 16 rows an item
  int token_steps = 0;  ///< steps of 8 tokens a tile
  int stages = 0;       ///< of a warp's ring
};

// By token steps (1, 2, 4), best first; later ones are for devices with less shared memory.
inline constexpr std::array<CudaTileShape, 6> kGateUpShapes{
    {{4, 1, 3}, {2, 1, 3}, {4, 2, 3}, {2, 2, 3}, {4, 4, 3}, {2, 4, 3}}};
inline constexpr std::array<CudaTileShape, 6> kDownSumsShapes{
    {{3, 1, 4}, {2, 1, 4}, {1, 1, 4}, {3, 2, 3}, {2, 2, 3}, {1, 2, 3}}};
inline constexpr std::array<CudaTileShape, 3> kDownRowsShapes{{{2, 4, 3}, {2, 2, 3}, {1, 1, 3}}};

/// Mean tokens of an expert up to which tiles of 8 and of 16 tokens serve.
inline constexpr std::int64_t kMeanTokensOfOneStep = 4;
inline constexpr std::int64_t kMeanTokensOfTwoSteps = 14;
/// Tokens up to which the sums of a slice of output columns may live in shared memory.
inline constexpr std::int64_t kMaxSumsTokens = 256;
/// Output columns of a panel of rows: fp32 rows of one panel are all that is kept of the second projection.
inline constexpr std::int64_t kPanelColumns = 384;

}  // namespace fourfold
