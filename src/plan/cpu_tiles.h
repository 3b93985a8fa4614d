// Tile sizes that the CPU plan and the CPU micro-kernels share. Plain constants: files of any instruction set may
// include this.
#pragma once

#include <cstdint>

namespace fourfold::cpu {

inline constexpr int kPanelRows = 16;    // output rows of a panel: one 512-bit register of fp32 lanes
inline constexpr int kStepColumns = 16;  // reduction positions of a step; every group size is a multiple
inline constexpr int kStepBytes = 128;   // 16 x 16 codes of 4 bits
inline constexpr int kCallPanels = 4;    // panels of one kernel call
inline constexpr int kCallColumns = kCallPanels * kPanelRows;
inline constexpr int kTileStepBytes = kCallPanels * kStepBytes;  // a step of all panels of a call
inline constexpr int kTokenTile = 96;      // tokens multiplied per pass over an unpacked panel
inline constexpr int kUnpackedPanels = 2;  // panels unpacked at a time
inline constexpr int kChunkSteps = 16;     // steps unpacked at a time: at most 32 KiB, an L1 cache

// Scratch of one thread, in order. Sums and carried group sums: [kTokenTile][kCallColumns] fp32.
inline constexpr std::int64_t kSumsBytes = std::int64_t{kTokenTile} * kCallColumns * 4;
inline constexpr std::int64_t kCarriedBytes = std::int64_t{kTokenTile} * kUnpackedPanels * kPanelRows * 4;
inline constexpr std::int64_t kUnpackedScaleBytes = std::int64_t{kUnpackedPanels} * kChunkSteps * kPanelRows * 4;
/// Row pointers, router weights and tile rows of a token tile.
inline constexpr std::int64_t kRowListBytes = std::int64_t{kTokenTile} * (8 + 8 + 8);
/// Unpacked codes: one 32-bit word holds one fp32 or two bf16 values.
inline constexpr std::int64_t unpacked_code_bytes(bool bf16_dot) {
  return std::int64_t{kUnpackedPanels} * kChunkSteps * kStepColumns * kPanelRows * (bf16_dot ? 2 : 4);
}
inline constexpr std::int64_t thread_scratch_bytes(bool bf16_dot) {
  return kSumsBytes + kCarriedBytes + kUnpackedScaleBytes + kRowListBytes + unpacked_code_bytes(bf16_dot);
}

}  // namespace fourfold::cpu
