// Pure repacking between the public 4-bit layouts of one expert matrix and ours (QuantizedMatrix).
// GPTQ: AutoGPTQ's QuantLinear.pack; AWQ: AutoAWQ's WQLinear_GEMM; compressed-tensors: pack_to_int32 of that library.
// Tensors may start at any byte. `name` (the matrix's name in its checkpoint) begins every error text.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "formats/quantize.h"
#include "fourfold/tensor.h"

namespace fourfold {

/// How a GPTQ checkpoint stores zero points.
enum class GptqZeros : std::uint8_t {
  minus_one,  ///< v1, the usual: (zero - 1) modulo 16, so that 15 means zero point 0
  plain,      ///< v2 ("checkpoint_format": "gptq_v2"): the zero point itself
};

/// A GPTQ matrix [N, K], K and N multiples of 8.
struct GptqTensors {
  ConstTensorView qweight;  ///< i32 [K / 8, N]; nibble i (bits 4i..4i+3) of row r is position 8r + i
  ConstTensorView qzeros;   ///< i32 [groups, N / 8]; nibble i of column c is output 8c + i; absent means 8 everywhere
  ConstTensorView scales;   ///< f16, bf16 or f32 [groups, N]
  ConstTensorView g_idx;    ///< i32 [K], optional; must be k / group_size in order
};
/// Zero points are always kept (drop_symmetric_zero_points removes them). `group_size` 0 is the whole row (written -1
/// in GPTQ configs). Throws bad_input for shapes and dtypes that disagree, unsupported for act-order and group sizes.
QuantizedMatrix from_gptq(const GptqTensors& tensors, std::int64_t group_size, GptqZeros zeros, std::string_view name);

/// An AWQ ("gemm" version) matrix [N, K], N a multiple of 8. Nibble i of column c is output
/// 8c + {0, 2, 4, 6, 1, 3, 5, 7}[i].
struct AwqTensors {
  ConstTensorView qweight;  ///< i32 [K, N / 8]
  ConstTensorView qzeros;   ///< i32 [groups, N / 8]; absent means 8 everywhere
  ConstTensorView scales;   ///< f16, bf16 or f32 [groups, N]
};
/// As from_gptq.
QuantizedMatrix from_awq(const AwqTensors& tensors, std::int64_t group_size, std::string_view name);

/// A compressed-tensors "pack-quantized" int4 matrix [N, K].
struct CompressedInt4Tensors {
  ConstTensorView weight_packed;      ///< i32 [N, ceil(K / 8)]; nibble i of column c is k = 8c + i, stored q + 8
  ConstTensorView weight_scale;       ///< bf16, f16 or f32 [N, groups]
  ConstTensorView weight_zero_point;  ///< i32 [ceil(N / 8), groups]; nibble i of row r is row 8r + i, stored zero + 8
  ConstTensorView weight_shape;       ///< i64 [2] = N, K; optional: then K is 8 * columns
};
/// Zero points are there exactly when weight_zero_point is. A short last group is accepted (our extension).
/// Throws as from_gptq.
QuantizedMatrix from_compressed_int4(const CompressedInt4Tensors& tensors, std::int64_t group_size,
                                     std::string_view name);

/// weight_packed of `matrix` (int4), [rows, ceil(k / 8)]; unused nibbles are 0. Throws unsupported for other formats.
std::vector<std::int32_t> compressed_int4_codes(const QuantizedMatrix& matrix);
/// weight_zero_point of `matrix` (int4 with zero points), [ceil(rows / 8), groups]; unused nibbles are 0.
std::vector<std::int32_t> compressed_int4_zeros(const QuantizedMatrix& matrix);

/// When every zero point is 8, removes them: zeros empty, spec.zero_points false. Returns whether there are none now.
bool drop_symmetric_zero_points(QuantizedMatrix& matrix);

/// FP8 weights with block scales (DeepSeek-V3's layout, blocks of 128 x 128): out[n, k] = e4m3(weight[n, k]) *
/// scale[n / block_rows, k / block_columns], fp32. weight f8_e4m3 [N, K]; scale f32 or bf16
/// [ceil(N / block_rows), ceil(K / block_columns)]; out holds N * K. NaN bytes become NaN. Throws bad_input.
void dequantize_fp8_blocks(const ConstTensorView& weight, const ConstTensorView& scale, std::int64_t block_rows,
                           std::int64_t block_columns, std::span<float> out, std::string_view name);

}  // namespace fourfold
