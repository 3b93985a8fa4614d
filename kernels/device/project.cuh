// One element of a projection, W[row] . x, as its definition reads: position after position, in fp32.
#pragma once

#include "device/weight_format.cuh"

namespace fourfold::kernels {

/// global[expert][part] * sum over d = 0 .. D-1, ascending, of weight(expert, row, d) * x[d]. Each product is exact
/// inside its fused multiply-add, each sum is rounded once. x is bf16 or f16 [D]. No bias.
template <Format kFormat, Float16 kFloat>
__device__ inline float project(const MatrixParams& m, Int64 expert, Int64 row, Int32 part, const UInt16* x) {
  const UInt32* codes =  // [D / 8] words of 8 codes
      reinterpret_cast<const UInt32*>(m.codes + expert * m.codes_expert_bytes + row * m.codes_row_bytes);
  const UInt8* scales = static_cast<const UInt8*>(m.scales) + expert * m.scales_expert_bytes + row * m.scales_row_bytes;
  const UInt8* zeros = nullptr;  // [G]
  if (kFormat == Format::int4_zp) zeros = m.zeros + expert * m.zeros_expert_bytes + row * m.zeros_row_bytes;

  float sum = 0.0f;
  for (Int32 group = 0, begin = 0; begin < m.reduction; ++group, begin += m.group_size) {
    const float step = __fmul_rn(code_unit<kFormat>(), scale_value<kFormat>(scales, group, m.scale_type));
    const Int32 zero = kFormat == Format::int4_zp ? zeros[group] : 8;
    const Int32 end = begin + m.group_size < m.reduction ? begin + m.group_size : m.reduction;
    for (Int32 word = begin / 8; word < end / 8; ++word) {
      const UInt32 eight = codes[word];
      for (Int32 i = 0; i < 8; ++i) {
        const Int32 integer = code_integer<kFormat>(eight >> (4 * i) & 15u, zero);
        const float weight = __fmul_rn(static_cast<float>(integer), step);
        sum = __fmaf_rn(weight, widen<kFloat>(x[8 * word + i]), sum);
      }
    }
  }
  sum = __fmul_rn(sum, sum_factor<kFormat>());
  return kFormat == Format::nvfp4 ? __fmul_rn(m.global[expert * m.global_expert_floats + part], sum) : sum;
}

/// bias[expert][row], 0 without biases.
__device__ inline float bias_value(const MatrixParams& m, Int64 expert, Int64 row) {
  return m.bias ? m.bias[expert * m.bias_expert_floats + row] : 0.0f;
}

}  // namespace fourfold::kernels
