// Where everything of a layer lies in the CPU's packed weights: the same layout for every instruction set.
//
// A matrix [rows, k] is cut into panels of 16 rows and steps of 16 reduction positions, both padded.
//   codes  [panels][steps][128 bytes]: two 64-byte halves of 8 positions. Lane n of a half is the 32-bit word of row n:
//          its low half-word holds positions 0, 2, 4, 6 (lowest nibble first), its high half-word 1, 3, 5, 7, so that
//          one shift brings the pair (2s, 2s + 1) to the low nibbles of both half-words: the operand of a bf16 dot
//          product.
//   scales [panels][groups][16]: nvfp4 E4M3 and mxfp4 E8M0 bytes, int4 16-bit (bf16 or f16, per expert)
//   zeros  [panels][groups][16] bytes, int4 with zero points
//   bias   fp32 [panels][16]
// Padded positions hold codes of value 0. An expert is one block: gate, up, down; sections start at multiples of 64.
#pragma once

#include <cstdint>

#include "fourfold/plan.h"
#include "plan/cpu_tiles.h"

namespace fourfold {

/// One matrix inside an expert's block; offsets from the block's start, -1 for a section that does not exist.
struct CpuMatrixLayout {
  std::int64_t rows = 0, k = 0;
  std::int64_t panels = 0, steps = 0, groups = 0;
  std::int64_t group_steps = 0;  ///< steps of a group; the last group may be short
  std::int64_t codes = -1, scales = -1, zeros = -1, bias = -1;
};

struct CpuWeightLayout {
  bool gated = true;
  CpuMatrixLayout gate, up, down;  ///< gate is empty when not gated
  std::int64_t scale_bytes = 1;    ///< of one scale
  std::int64_t expert_bytes = 0;   ///< multiple of 64
  std::int64_t total_bytes = 0;
};

/// Throws unsupported when a size leaves 63 bits. Pure.
CpuWeightLayout cpu_weight_layout(const Caps& caps);

}  // namespace fourfold
