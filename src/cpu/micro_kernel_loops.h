// The loops of every micro-kernel, once. An instruction set is a policy type with the names below; everything here
// has internal linkage, so that no code of one instruction set can be linked into another.
//
// Policy: kWidth (fp32 lanes of a register), kSlots (32-bit words of x per 8 positions: 8 fp32 or 4 bf16 pairs),
//   kDirectTile, direct_panels(tokens), kBlockPanels, kBlockTokens, kRowSumsInMemory (registers hold the group's sums
//   only); Floats, Words, SignedWords, Weight, Input; zero, load, store, broadcast, fma, dot, prefetch
//   (into the second level: the first has too few misses in flight), load_words, input, weight<Codes>, no_zero_points,
//   zero_points, scale<Scales>, load_weight, store_weight, store_activated.
// Order of operations per (row, token), the same in both shapes, so their bits are equal:
//   acc = 0; for each group: { temp = 0; for each slot in k order: temp = dot(temp, w, x);
//                              acc = fma(scale, temp, acc) }
#pragma once

#include <cstdint>

#include "cpu/micro_kernel.h"

namespace fourfold::cpu {
namespace {

enum class Codes { e2m1, int4, int4_zeros };
enum class Scales { e4m3, e8m0, bf16, f16, f32 };

template <Scales kScales>
constexpr int scale_bytes() {
  return kScales == Scales::f32 ? 4 : kScales == Scales::bf16 || kScales == Scales::f16 ? 2 : 1;
}

constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t larger(std::int64_t a, std::int64_t b) { return a < b ? b : a; }

/// Whole groups of a tile that stay in the first-level cache while every pass over panels and tokens reads them.
struct Slice {
  std::int64_t first_step, steps;
  const std::uint8_t* codes;  // of the call's first panel, as in TileSource
  const std::uint8_t* scales;
  const std::uint8_t* zeros;
  std::int64_t ahead;  // from a byte of this slice to the byte to prefetch: the next slice, or the next tile
};

/// kPanels panels from `first_panel`, kTokens tokens from `first_token`, codes decoded in registers.
template <class Isa, Codes kCodes, Scales kScales, int kPanels, int kTokens>
void direct_tile(const DotCall& call, const Slice& slice, int first_panel, int first_token) {
  constexpr int kVectors = kPanelRows / Isa::kWidth;
  constexpr int kHalfBytes = kStepBytes / 2;
  constexpr int kVectorBytes = Isa::kWidth * 4;
  typename Isa::Floats acc[kPanels][kTokens][kVectors];
  const std::uint8_t* rows[kTokens];
  float* const sums = call.sums + first_token * kCallColumns + first_panel * kPanelRows;
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    rows[t] = call.rows[first_token + t] + slice.first_step * (8 * Isa::kSlots);
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        acc[p][t][v] = slice.first_step == 0 ? Isa::zero()
                                             : Isa::load(sums + t * kCallColumns + p * kPanelRows + v * Isa::kWidth);
  }
  const std::uint8_t* codes = slice.codes + first_panel * kStepBytes;
  const std::uint8_t* scales = slice.scales + first_panel * kPanelRows * scale_bytes<kScales>();
  [[maybe_unused]] const std::uint8_t* zero_points = nullptr;
  if constexpr (kCodes == Codes::int4_zeros) zero_points = slice.zeros + first_panel * kPanelRows;
  const std::int64_t header_bytes = call.tile.record_bytes - call.group_steps * kTileStepBytes;
  const std::int64_t ahead = first_token == 0 ? slice.ahead : 0;
  std::int64_t x_byte = 0;  // offset of a half step's activations
  for (std::int64_t step = 0; step < slice.steps; step += call.group_steps) {
    const std::int64_t group_end = x_byte + 8 * Isa::kSlots * smaller(call.group_steps, slice.steps - step);
    typename Isa::Floats temp[kPanels][kTokens][kVectors];
    typename Isa::Words zeros[kPanels][kVectors];
    Isa::prefetch(scales + ahead);
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kCodes == Codes::int4_zeros)
          zeros[p][v] = Isa::zero_points(zero_points + p * kPanelRows + v * Isa::kWidth);
        else
          zeros[p][v] = Isa::no_zero_points();
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) temp[p][t][v] = Isa::zero();
      }
    while (x_byte < group_end) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half, x_byte += 4 * Isa::kSlots) {
        typename Isa::Words words[kPanels][kVectors];
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) {
          const std::uint8_t* const line = codes + p * kStepBytes + half * kHalfBytes;
          Isa::prefetch(line + ahead);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) words[p][v] = Isa::load_words(line + v * kVectorBytes);
        }
#pragma GCC unroll 8
        for (int slot = 0; slot < Isa::kSlots; ++slot) {
          typename Isa::Weight w[kPanels][kVectors];
#pragma GCC unroll 8
          for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v)
              w[p][v] = Isa::template weight<kCodes>(words[p][v], slot, zeros[p][v]);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            const typename Isa::Input x = Isa::input(rows[t] + x_byte + 4 * slot);
#pragma GCC unroll 8
            for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
              for (int v = 0; v < kVectors; ++v) temp[p][t][v] = Isa::dot(temp[p][t][v], w[p][v], x);
          }
        }
      }
      codes += kTileStepBytes;
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const typename Isa::Floats scale =
            Isa::template scale<kScales>(scales + (p * kPanelRows + v * Isa::kWidth) * scale_bytes<kScales>());
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) acc[p][t][v] = Isa::fma(scale, temp[p][t][v], acc[p][t][v]);
      }
    codes += header_bytes;
    scales += call.tile.scale_row_bytes;
    if constexpr (kCodes == Codes::int4_zeros) zero_points += call.tile.record_bytes;
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        Isa::store(sums + t * kCallColumns + p * kPanelRows + v * Isa::kWidth, acc[p][t][v]);
}

template <class Isa, Codes kCodes, Scales kScales, int kTokens>
void direct_tokens(const DotCall& call, const Slice& slice, int first_token) {
  constexpr int kPanels = Isa::direct_panels(kTokens);
  int panel = 0;
  for (; panel + kPanels <= call.panel_count; panel += kPanels)
    direct_tile<Isa, kCodes, kScales, kPanels, kTokens>(call, slice, panel, first_token);
  if constexpr (kPanels > 2)
    for (; panel + 2 <= call.panel_count; panel += 2)
      direct_tile<Isa, kCodes, kScales, 2, kTokens>(call, slice, panel, first_token);
  if constexpr (kPanels > 1)
    for (; panel < call.panel_count; ++panel)
      direct_tile<Isa, kCodes, kScales, 1, kTokens>(call, slice, panel, first_token);
}

/// Tokens of the next of `blocks_left` passes over `tokens_left`: 7 in two passes are 4 and 3, not 6 and 1.
constexpr int even_share(int tokens_left, int blocks_left) { return (tokens_left + blocks_left - 1) / blocks_left; }

/// The direct shape on one slice: tokens in tiles of at most Isa::kDirectTile, each decoding the codes anew.
template <class Isa, Codes kCodes, Scales kScales>
void direct_slice(const DotCall& call, const Slice& slice) {
  constexpr int kTile = Isa::kDirectTile;
  static_assert(kTile >= 2 && kTile <= 6);
  int token = 0;
  for (int blocks = (call.tokens + kTile - 1) / kTile; blocks > 0; --blocks) {
    const int count = even_share(call.tokens - token, blocks);
    switch (count) {
      case 1:
        direct_tokens<Isa, kCodes, kScales, 1>(call, slice, token);
        break;
      case 2:
        direct_tokens<Isa, kCodes, kScales, 2>(call, slice, token);
        break;
      case 3:
        if constexpr (kTile >= 3) direct_tokens<Isa, kCodes, kScales, 3>(call, slice, token);
        break;
      case 4:
        if constexpr (kTile >= 4) direct_tokens<Isa, kCodes, kScales, 4>(call, slice, token);
        break;
      case 5:
        if constexpr (kTile >= 5) direct_tokens<Isa, kCodes, kScales, 5>(call, slice, token);
        break;
      default:
        if constexpr (kTile >= 6) direct_tokens<Isa, kCodes, kScales, 6>(call, slice, token);
        break;
    }
    token += count;
  }
}

/// The direct shape. A slice is read from memory by its first passes while they prefetch the next slice, so that memory
/// is never idle, whatever the number of passes.
template <class Isa, Codes kCodes, Scales kScales>
void direct(const DotCall& call) {
  const std::int64_t slice_groups = larger(kChunkSteps / call.group_steps, 1);
  const std::int64_t slice_steps = slice_groups * call.group_steps;
  Slice slice{0, 0, call.tile.codes, call.tile.scales, call.tile.zeros, slice_groups * call.tile.record_bytes};
  for (; slice.first_step < call.steps; slice.first_step += slice_steps) {
    slice.steps = smaller(slice_steps, call.steps - slice.first_step);
    if (slice.first_step + slice_steps >= call.steps && call.next != nullptr) slice.ahead = call.next - slice.codes;
    direct_slice<Isa, kCodes, kScales>(call, slice);
    slice.codes += slice_groups * call.tile.record_bytes;
    slice.scales += slice_groups * call.tile.scale_row_bytes;
    if constexpr (kCodes == Codes::int4_zeros) slice.zeros += slice_groups * call.tile.record_bytes;
  }
}

/// A chunk of the reduction axis: whole groups, or a piece of one group that is longer than a chunk.
struct Chunk {
  std::int64_t first_step, steps, first_group;
  std::int64_t tile_bytes;  // of a full chunk of all panels
  bool continues;   // the first group began in an earlier chunk
  bool unfinished;  // the last group goes on in a later chunk
};

/// Unpacks a chunk of one panel of the call: codes to values (not scaled), scales to fp32. The first panel's pass
/// prefetches the chunk after this one, all panels of it: it is needed after this one has met every token.
template <class Isa, Codes kCodes, Scales kScales>
void unpack_panel(const DotCall& call, int panel, const Chunk& chunk, std::uint8_t* values, float* scales) {
  constexpr int kVectors = kPanelRows / Isa::kWidth;
  constexpr int kHalfBytes = kStepBytes / 2;
  constexpr int kVectorBytes = Isa::kWidth * 4;
  const std::int64_t first_group_step = chunk.first_group * call.group_steps;
  const std::uint8_t* codes = call.tile.codes + panel * kStepBytes + chunk.first_group * call.tile.record_bytes +
                              (chunk.first_step - first_group_step) * kTileStepBytes;
  const std::uint8_t* scale = call.tile.scales + panel * kPanelRows * scale_bytes<kScales>() +
                              chunk.first_group * call.tile.scale_row_bytes;
  [[maybe_unused]] const std::uint8_t* zero_points = nullptr;
  if constexpr (kCodes == Codes::int4_zeros)
    zero_points = call.tile.zeros + panel * kPanelRows + chunk.first_group * call.tile.record_bytes;
  const std::int64_t header_bytes = call.tile.record_bytes - call.group_steps * kTileStepBytes;
  for (std::int64_t step = 0; step < chunk.steps; step += call.group_steps) {
    const std::int64_t steps = smaller(call.group_steps, chunk.steps - step);
    typename Isa::Words zeros[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kCodes == Codes::int4_zeros)
        zeros[v] = Isa::zero_points(zero_points + v * Isa::kWidth);
      else
        zeros[v] = Isa::no_zero_points();
      Isa::store(scales + v * Isa::kWidth,
                 Isa::template scale<kScales>(scale + v * Isa::kWidth * scale_bytes<kScales>()));
    }
    scales += kPanelRows;
    scale += call.tile.scale_row_bytes;
    if constexpr (kCodes == Codes::int4_zeros) zero_points += call.tile.record_bytes;
    for (std::int64_t s = 0; s < steps; ++s, codes += kTileStepBytes) {
      if (panel == 0)
#pragma GCC unroll 8
        for (int line = 0; line < kTileStepBytes / 64; ++line)
          Isa::prefetch(codes + chunk.tile_bytes + line * 64);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half, values += Isa::kSlots * kPanelRows * 4)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const typename Isa::Words words = Isa::load_words(codes + half * kHalfBytes + v * kVectorBytes);
#pragma GCC unroll 8
          for (int slot = 0; slot < Isa::kSlots; ++slot)
            Isa::store_weight(values + slot * kPanelRows * 4 + v * kVectorBytes,
                              Isa::template weight<kCodes>(words, slot, zeros[v]));
        }
    }
    codes += header_bytes;
  }
}

/// Distance between the unpacked panels of a chunk.
template <class Isa>
constexpr std::int64_t unpacked_panel_bytes() {
  return std::int64_t{kChunkSteps} * 2 * Isa::kSlots * kPanelRows * 4;
}
constexpr std::int64_t kUnpackedPanelScales = std::int64_t{kChunkSteps} * kPanelRows;

/// One chunk of kPanels unpacked panels (from `unpacked`, which is panel `first_panel` of the call) for kTokens tokens.
template <class Isa, int kPanels, int kTokens>
void blocked_tile(const DotCall& call, const Chunk& chunk, int first_panel, int unpacked, int first_token) {
  constexpr int kVectors = kPanelRows / Isa::kWidth;
  constexpr int kVectorBytes = Isa::kWidth * 4;
  typename Isa::Floats acc[kPanels][kTokens][kVectors];
  typename Isa::Floats temp[kPanels][kTokens][kVectors];
  const std::uint8_t* rows[kTokens];
  float* const sums = call.sums + first_token * kCallColumns + first_panel * kPanelRows;
  float* const carried = call.carried + (first_token * kUnpackedPanels + unpacked) * kPanelRows;
  constexpr int kCarriedStride = kUnpackedPanels * kPanelRows;
  const std::int64_t x_first = chunk.first_step * 2 * Isa::kSlots * 4;
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    rows[t] = call.rows[first_token + t] + x_first;
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const int lane = p * kPanelRows + v * Isa::kWidth;
        acc[p][t][v] = chunk.first_step == 0 ? Isa::zero() : Isa::load(sums + t * kCallColumns + lane);
        if constexpr (Isa::kRowSumsInMemory) Isa::store(sums + t * kCallColumns + lane, acc[p][t][v]);
        temp[p][t][v] = chunk.continues ? Isa::load(carried + t * kCarriedStride + lane) : Isa::zero();
      }
  }
  const std::uint8_t* values = call.unpacked_codes + unpacked * unpacked_panel_bytes<Isa>();
  const float* scales = call.unpacked_scales + unpacked * kUnpackedPanelScales;
  for (std::int64_t step = 0; step < chunk.steps; step += call.group_steps, scales += kPanelRows) {
    const std::int64_t slots = 2 * Isa::kSlots * smaller(call.group_steps, chunk.steps - step);
    for (std::int64_t slot = 0; slot < slots; ++slot, values += kPanelRows * 4) {
      typename Isa::Weight w[kPanels][kVectors];
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          w[p][v] = Isa::load_weight(values + p * unpacked_panel_bytes<Isa>() + v * kVectorBytes);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const typename Isa::Input x = Isa::input(rows[t] + 4 * slot);
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) temp[p][t][v] = Isa::dot(temp[p][t][v], w[p][v], x);
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) rows[t] += 4 * slots;
    if (chunk.unfinished) break;  // a piece of one long group: there is no other group in the chunk
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const typename Isa::Floats scale = Isa::load(scales + p * kUnpackedPanelScales + v * Isa::kWidth);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          if constexpr (Isa::kRowSumsInMemory) {
            float* const sum = sums + t * kCallColumns + p * kPanelRows + v * Isa::kWidth;
            Isa::store(sum, Isa::fma(scale, temp[p][t][v], Isa::load(sum)));
          } else {
            acc[p][t][v] = Isa::fma(scale, temp[p][t][v], acc[p][t][v]);
          }
          temp[p][t][v] = Isa::zero();
        }
      }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const int lane = p * kPanelRows + v * Isa::kWidth;
        if constexpr (!Isa::kRowSumsInMemory) Isa::store(sums + t * kCallColumns + lane, acc[p][t][v]);
        if (chunk.unfinished) Isa::store(carried + t * kCarriedStride + lane, temp[p][t][v]);
      }
}

template <class Isa, int kPanels>
void blocked_tokens(const DotCall& call, const Chunk& chunk, int first_panel, int unpacked) {
  int token = 0;
  for (int blocks = (call.tokens + Isa::kBlockTokens - 1) / Isa::kBlockTokens; blocks > 0; --blocks) {
    const int count = even_share(call.tokens - token, blocks);
    switch (count) {
      case 1:
        blocked_tile<Isa, kPanels, 1>(call, chunk, first_panel, unpacked, token);
        break;
      case 2:
        blocked_tile<Isa, kPanels, 2>(call, chunk, first_panel, unpacked, token);
        break;
      case 3:
        if constexpr (Isa::kBlockTokens >= 3) blocked_tile<Isa, kPanels, 3>(call, chunk, first_panel, unpacked, token);
        break;
      case 4:
        if constexpr (Isa::kBlockTokens >= 4) blocked_tile<Isa, kPanels, 4>(call, chunk, first_panel, unpacked, token);
        break;
      case 5:
        if constexpr (Isa::kBlockTokens >= 5) blocked_tile<Isa, kPanels, 5>(call, chunk, first_panel, unpacked, token);
        break;
      default:
        if constexpr (Isa::kBlockTokens >= 6) blocked_tile<Isa, kPanels, 6>(call, chunk, first_panel, unpacked, token);
        break;
    }
    token += count;
  }
}

/// The blocked shape: a chunk of two panels is unpacked once, then multiplied with every token.
template <class Isa, Codes kCodes, Scales kScales>
void blocked(const DotCall& call) {
  const bool whole_groups = call.group_steps <= kChunkSteps;
  const std::int64_t chunk_steps = whole_groups ? kChunkSteps / call.group_steps * call.group_steps : kChunkSteps;
  for (int panel = 0; panel < call.panel_count; panel += kUnpackedPanels) {
    const int panels = static_cast<int>(smaller(kUnpackedPanels, call.panel_count - panel));
    Chunk chunk;
    chunk.tile_bytes = whole_groups ? chunk_steps / call.group_steps * call.tile.record_bytes
                                      : chunk_steps * kTileStepBytes;
    for (std::int64_t step = 0; step < call.steps; step += chunk.steps) {
      chunk.first_step = step;
      chunk.first_group = step / call.group_steps;
      const std::int64_t group_end = (chunk.first_group + 1) * call.group_steps;
      chunk.steps = smaller(chunk_steps, (whole_groups ? call.steps : smaller(call.steps, group_end)) - step);
      chunk.continues = step % call.group_steps != 0;
      chunk.unfinished = !whole_groups && step + chunk.steps < smaller(group_end, call.steps);
      for (int p = 0; p < panels; ++p)
        unpack_panel<Isa, kCodes, kScales>(call, panel + p, chunk,
                                           call.unpacked_codes + p * unpacked_panel_bytes<Isa>(),
                                           call.unpacked_scales + p * kUnpackedPanelScales);
      int p = 0;
      for (; p + Isa::kBlockPanels <= panels; p += Isa::kBlockPanels)
        blocked_tokens<Isa, Isa::kBlockPanels>(call, chunk, panel + p, p);
      if constexpr (Isa::kBlockPanels > 1)
        for (; p < panels; ++p) blocked_tokens<Isa, 1>(call, chunk, panel + p, p);
    }
  }
}

/// targets[t][c] += factors[t] * (sums[t][c] * global + bias[c])
template <class Isa>
void accumulate(const AccumulateCall& call) {
  const typename Isa::Floats global = Isa::broadcast(call.global);
  for (int t = 0; t < call.tokens; ++t) {
    const typename Isa::Floats factor = Isa::broadcast(call.factors[t]);
    const float* const sums = call.sums + t * kCallColumns;
    float* const target = call.targets[t];
    for (int column = 0; column < call.panel_count * kPanelRows; column += Isa::kWidth) {
      typename Isa::Floats value = Isa::load(sums + column) * global;
      if (call.bias) value = value + Isa::load(call.bias + column);
      Isa::store(target + column, Isa::load(target + column) + factor * value);
    }
  }
}

}  // namespace
}  // namespace fourfold::cpu
