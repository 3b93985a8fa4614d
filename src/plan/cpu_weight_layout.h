// Where everything of a layer lies in the CPU's packed weights: the same layout for every instruction set.
//
// A matrix [rows, k] is cut into panels of 16 rows and steps of 16 reduction positions, both padded; four panels are a
// tile, so that one kernel call reads one stream of memory: hardware prefetchers follow one stream to the memory's
// limit, and eight of them to about half of it. gate and up are one matrix whose tiles hold two panels of each.
//   matrix  [tiles][records], one record a group: scales, zero points, codes
//   scales  [4 panels][16]: nvfp4 E4M3 and mxfp4 E8M0 bytes, int4 16-bit (bf16 or f16, per expert)
//   zeros   [4 panels][16] bytes, int4 with zero points
//   codes   [steps of the group][4 panels][128 bytes]: two 64-byte halves of 8 positions. Lane n of a half is the
//           32-bit word of row n: its low half-word holds positions 0, 2, 4, 6 (lowest nibble first), its high
//           half-word 1, 3, 5, 7, so that one shift brings the pair (2s, 2s + 1) to the low nibbles of both half-words:
//           the operand of a bf16 dot product.
//   bias    fp32 [tiles][4 panels][16], after the matrices
// Padded positions hold codes of value 0. An expert is one block; every part of it starts at a multiple of 64.
#pragma once

#include <cstdint>

#include "fourfold/plan.h"
#include "plan/cpu_tiles.h"

namespace fourfold {

/// One matrix inside an expert's block, or gate and up together; offsets from the block's start.
struct CpuMatrixLayout {
  int parts = 1;                         ///< 2: panels 0, 1 of a tile are gate's, 2, 3 up's
  std::int64_t rows = 0, k = 0;          ///< of each part
  std::int64_t panels = 0, tiles = 0;    ///< panels of each part that hold a row; tiles of kCallPanels panels
  std::int64_t steps = 0, groups = 0;
  std::int64_t group_steps = 0;          ///< steps of a group; the last group may be short
  std::int64_t header_bytes = 0;         ///< scales and zero points of a record
  std::int64_t record_bytes = 0;         ///< of a whole group
  std::int64_t tile_bytes = 0;
  std::int64_t data = -1, bias = -1;     ///< -1: does not exist

  /// Panels of one part in a tile.
  int part_panels() const noexcept { return cpu::kCallPanels / parts; }
};

struct CpuWeightLayout {
  CpuMatrixLayout gate_up, down;  ///< gate_up has one part when not gated
  std::int64_t scale_bytes = 1;   ///< of one scale
  std::int64_t expert_bytes = 0;  ///< multiple of 64
  std::int64_t total_bytes = 0;
};

/// Throws unsupported when a size leaves 63 bits. Pure.
CpuWeightLayout cpu_weight_layout(const Caps& caps);

}  // namespace fourfold
