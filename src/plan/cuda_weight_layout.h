// Where everything of a layer lies in the GPU's packed weights: one allocation, one section per tensor, experts
// stacked.
//   codes   u8 [experts][rows][k / 2], even position in the low nibble
//   scales  [experts][rows][groups]: nvfp4 E4M3 and mxfp4 E8M0 bytes, int4 16-bit or fp32
//   zeros   u8 [experts][rows][groups], int4 with zero points
//   global  f32 [experts][parts], nvfp4; parts are gate and up, or one
//   bias    f32 [experts][rows]
// The rows of the first projection are all gate rows, then all up rows (up rows alone without a gate). Sections start
// at multiples of 256.
#pragma once

#include <cstdint>

#include "fourfold/plan.h"

namespace fourfold {

/// One projection of all experts. Offsets from the start of the allocation, -1 for a section that does not exist.
struct CudaMatrixLayout {
  std::int64_t rows = 0, k = 0, parts = 1;
  std::int64_t groups = 0;
  std::int64_t group_size = 0;   ///< positions of a group; k when the whole row is one
  std::int64_t scale_bytes = 1;  ///< of one scale
  std::int64_t codes = -1, scales = -1, zeros = -1, global = -1, bias = -1;
  std::int64_t codes_row_bytes() const noexcept { return k / 2; }
  std::int64_t scales_row_bytes() const noexcept { return groups * scale_bytes; }
};

struct CudaWeightLayout {
  CudaMatrixLayout gate_up, down;
  std::int64_t total_bytes = 0;  ///< multiple of 256
};

/// Bytes of one int4 scale in each projection; other formats ignore it. The dtype of the scales is known when weights
/// are packed, not when they are planned: a plan prices 16 bits.
struct CudaScaleBytes {
  std::int64_t gate_up = 2, down = 2;
};

/// Throws unsupported when a size leaves 63 bits. Pure.
CudaWeightLayout cuda_weight_layout(const Caps& caps, const CudaScaleBytes& int4_scale_bytes = {});

}  // namespace fourfold
