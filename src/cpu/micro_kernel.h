// The seam between the CPU run and its micro-kernels: plain structs and a table of functions per instruction set.
// Plain data only: this header is included by files compiled for different instruction sets.
#pragma once

#include <cstdint>

#include "plan/cpu_tiles.h"

namespace fourfold::cpu {

/// How 16 rows' codes and scales are stored. int4 names its scale's width and whether it has zero points.
enum class PanelFormat : std::uint8_t {
  nvfp4,
  mxfp4,
  int4_bf16,
  int4_f16,
  int4_f32,
  int4_zeros_bf16,
  int4_zeros_f16,
  int4_zeros_f32,
};
inline constexpr int kPanelFormats = 8;

/// Panels of one tile from the one that is to be multiplied first (layout: src/plan/cpu_weight_layout.h). Panels lie
/// side by side: 16 scales, 16 zero points and kStepBytes of codes apart.
struct TileSource {
  const std::uint8_t* codes;     // of the first group
  const std::uint8_t* scales;    // of the first group, of 1, 2 or 4 bytes
  const std::uint8_t* zeros;     // of the first group, or null
  std::int64_t record_bytes;     // from a group's codes or zero points to the next group's
  std::int64_t scale_row_bytes;  // from a group's scales to the next group's
};

/// sums[t][16 p + n] = sum over groups of scale * (sum over the group of code value * x), both sums in k order,
/// for every token t, panel p, row n. Bits depend on the row's weights and the token's x alone.
struct DotCall {
  TileSource tile;
  int panel_count;                  // 1 .. kCallPanels
  std::int64_t steps;               // ceil(k / 16)
  std::int64_t group_steps;         // steps of a group; the last group may be short
  const std::uint8_t* next;         // codes that will be read after this tile, to be prefetched; null: what follows it
  const std::uint8_t* const* rows;  // [tokens] activations in compute type, 16 * steps values, zero-padded
  int tokens;                       // 1 .. kTokenTile
  float* sums;                      // [tokens][kCallColumns], aligned to 64
  float* carried;                   // kCarriedBytes, aligned to 64 (blocked only)
  float* unpacked_scales;           // kUnpackedScaleBytes, aligned to 64 (blocked only)
  std::uint8_t* unpacked_codes;     // unpacked_code_bytes(), aligned to 64 (blocked only)
};
using DotKernel = void (*)(const DotCall&);

enum class ActivationFunction : std::uint8_t { silu, swiglu_oai, situ, gelu_tanh, relu2 };
/// Precision to which the activated intermediate is rounded.
enum class RoundTo : std::uint8_t { bf16, f16, f32 };

/// Activated intermediate of up to kCallColumns columns: p = sum * global, times input_factors[t] when given, plus
/// bias; activation(gate, up); one rounding; stored in compute type. Columns from `columns` on get zero.
struct ActivateCall {
  const float* gate_sums;  // [tokens][stride kCallColumns] or null when not gated
  const float* up_sums;    // [tokens][stride kCallColumns]
  int tokens;
  int panel_count;  // 16 columns each
  int columns;      // valid columns, 1 .. 16 * panel_count
  float gate_global, up_global;
  const float* gate_bias;  // [16 * panel_count] or null
  const float* up_bias;
  const float* input_factors;  // [tokens] or null
  ActivationFunction function;
  RoundTo round_to;
  bool has_limit;
  float limit, alpha, beta;
  std::uint8_t* const* out_rows;  // [tokens] where this call's first column goes
};

/// targets[t][c] += factors[t] * (sums[t][c] * global + bias[c]) in fp32.
struct AccumulateCall {
  const float* sums;  // [tokens][kCallColumns]
  int tokens;
  int panel_count;
  float global;
  const float* bias;      // [16 * panel_count] or null
  const float* factors;   // [tokens]
  float* const* targets;  // [tokens]
};

/// The kernels of one instruction set and one compute type (fp32, or bf16 pairs).
struct MicroKernels {
  const char* name;                  // "avx2", as in kernel names
  DotKernel direct[kPanelFormats];   // few tokens: codes decoded in registers
  DotKernel blocked[kPanelFormats];  // many tokens: codes decoded once into scratch
  void (*activate)(const ActivateCall&);
  void (*accumulate)(const AccumulateCall&);
};

const MicroKernels& micro_kernels_portable();
#if defined(__x86_64__)
const MicroKernels& micro_kernels_avx2();
const MicroKernels& micro_kernels_avx512();
const MicroKernels& micro_kernels_avx512_bf16();
#endif

}  // namespace fourfold::cpu
