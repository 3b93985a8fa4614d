// The seam between the dense operations and their instruction sets: a table of kernels over plain structs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fourfold::cpu {

/// Rows of a weight that lie side by side: one 512-bit register of fp32.
inline constexpr std::int64_t kPanelRows = 16;
/// Most rows of x that one tile call of any kernel keeps in registers; blocks of x are multiples of it.
inline constexpr std::int64_t kTileTokens = 12;

/// What becomes of a tile's sums.
enum class TileMode : std::uint8_t {
  store,   // y = sum + bias
  add,     // y = y + (sum + bias)
  resume,  // the sum starts from y and is stored back without bias: a longer k in pieces, same bits
};

/// y[t, panel * 16 + r] for `panels` panels and `tokens` rows of x, each a sum over k in ascending order. Panels of
/// bf16 hold [ceil(k / 2)][16 rows][2] (pairs along k), panels of fp32 [k][16 rows]. With an odd k the partner of the
/// last bf16 entry is never used.
struct TileCall {
  const std::byte* w = nullptr;   // first panel
  std::int64_t panel_stride = 0;  // bytes between panels
  std::int64_t panels = 0;
  std::int64_t k = 0;
  const void* x = nullptr;    // [tokens, k] fp32, or bf16 for the dot-product kernel
  std::int64_t x_stride = 0;  // elements between rows
  std::int64_t tokens = 0;
  float* y = nullptr;           // [tokens, columns]
  std::int64_t y_stride = 0;    // elements between rows
  std::int64_t columns = 0;     // columns that may be written, <= 16 * panels
  const float* bias = nullptr;  // [columns] or null
  TileMode mode = TileMode::store;
};

/// One token's part of prepare_qkv for one head, in place: x / rms * weight, then rotation of halves.
struct HeadCall {
  float* x = nullptr;  // [head_dim]
  std::int64_t head_dim = 0;
  const float* weight = nullptr;  // [head_dim] or null: no norm
  float eps = 0;
  const float* cosine = nullptr;  // [half_dim]
  const float* sine = nullptr;    // [half_dim]
  std::int64_t half_dim = 0;
};

/// One row: x += addend, then y = x / sqrt(mean(x^2) + eps) * weight.
struct RmsNormRow {
  float* x = nullptr;            // [width]
  const void* addend = nullptr;  // [width] bf16 or fp32, or null
  bool addend_is_bf16 = false;
  const float* weight = nullptr;  // [width]
  float eps = 0;
  std::int64_t width = 0;
  void* y = nullptr;  // [width] bf16 or fp32; may be x when fp32
  bool y_is_bf16 = false;
};

/// Kernels of one instruction set. Every one works on any alignment.
struct OpsKernels {
  void (*tile_bf16_f32)(const TileCall&) = nullptr;   // weights bf16, x fp32
  void (*tile_f32_f32)(const TileCall&) = nullptr;    // weights fp32, x fp32
  void (*tile_bf16_bf16)(const TileCall&) = nullptr;  // weights bf16, x bf16; null without a dot product
  /// x[0, n) -> exp(scale * (x - max)), the sum returned. Reads and writes up to the next multiple of 16; n > 0.
  float (*softmax_f32)(float* x, std::int64_t n, float scale) = nullptr;
  /// The same with the exponentials rounded to bf16 and written over the front of x; the sum is that of the rounded.
  float (*softmax_bf16)(float* x, std::int64_t n, float scale) = nullptr;
  void (*rms_norm)(const RmsNormRow&) = nullptr;
  void (*head)(const HeadCall&) = nullptr;
  void (*silu_mul)(const float* gate, const float* up, std::int64_t n, void* y, bool y_is_bf16) = nullptr;
  void (*to_bf16)(const float* x, std::int64_t n, std::uint16_t* y) = nullptr;
  void (*from_bf16)(const std::uint16_t* x, std::int64_t n, float* y) = nullptr;
  void (*scale_add)(const float* x, float factor, std::int64_t n, float* y) = nullptr;  // y = fma(factor, x, y)
  void (*scale)(const float* x, float factor, std::int64_t n, void* y, bool y_is_bf16) = nullptr;  // y = factor * x
};

/// The tables by instruction set. The wider ones may only be called on a machine that has it.
const OpsKernels& ops_kernels_portable();
const OpsKernels& ops_kernels_avx2();
const OpsKernels& ops_kernels_avx512();
const OpsKernels& ops_kernels_avx512_bf16();

}  // namespace fourfold::cpu
