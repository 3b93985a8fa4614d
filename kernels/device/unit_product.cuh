// The product of a unit (16 rows x 64 positions of packed weights) with 8 to 8 * kSteps tokens, both in shared memory.
#pragma once

#include "device/ptx_mma.cuh"
#include "device/unpack.cuh"
#include "params/tile_params.h"

namespace fourfold::kernels {

template <Float16 kFloat>
__device__ inline void multiply_step(float (&c)[4], const UInt32* a, UInt32 b0, UInt32 b1) {
  if (kFloat == Float16::bf16) {
    mma_m16n8k16_bf16(c, a, b0, b1);
  } else {
    mma_m16n8k16_f16(c, a, b0, b1);
  }
}

/// The narrow operand of a unit: words 2 s and 2 s + 1 of step s of 8 tokens. Which positions a lane's step covers is
/// free as long as both operands agree:
///   nvfp4   16 t + 4 s .. + 3: a lane's 32 codes are 16 neighbours in each of two rows, so one scale serves 16 codes
///   others  16 s + 4 t .. + 3: a step covers 16 neighbours, so a partial sum belongs to one group of any size
template <Format kFormat>
__device__ inline void load_tokens(UInt32 row_address, UInt32 t, UInt32 (&b)[8]) {
  if (kScaleOnSum<kFormat>) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint2 v = load_shared_8(row_address + 32 * s + 8 * t);
      b[2 * s] = v.x;
      b[2 * s + 1] = v.y;
    }
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 v = load_shared_16(row_address + 32 * t + 16 * h);
      b[4 * h] = v.x;
      b[4 * h + 1] = v.y;
      b[4 * h + 2] = v.z;
      b[4 * h + 3] = v.w;
    }
  }
}

/// How scales and zero points lie behind the codes of a unit whose scales multiply sums: [8 g][row g, row g + 8][spans],
/// scales first.
struct UnitScales {
  UInt32 address;       // of this lane's pair of rows
  UInt32 zero_address;  // int4 with zero points
  Int32 spans;          // stored scales of a row in a unit: 1, 2 or 4
  Int32 type;           // ScaleType of int4
};

template <Format kFormat>
__device__ inline float span_scale(const UnitScales& scales, int row, int span) {
  const Int32 index = row * scales.spans + span;
  if (kFormat == Format::mxfp4) return e8m0_to_float(static_cast<UInt8>(load_shared_1(scales.address + index)));
  if (static_cast<ScaleType>(scales.type) == ScaleType::f32)
    return __uint_as_float(load_shared_4(scales.address + 4 * index));
  const UInt16 bits = static_cast<UInt16>(load_shared_2(scales.address + 2 * index));
  return static_cast<ScaleType>(scales.type) == ScaleType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

/// acc += unit x tokens with scales in the operand (nvfp4), times 1 / kOperandFactor.
template <Float16 kFloat, int kSteps>
__device__ inline void multiply_unit_nvfp4(UInt32 unit_address, UInt32 lane, const UInt32 (&b)[kSteps][8], int steps,
                                           float (&acc)[kSteps][4]) {
  UInt32 a[16];
  unpack_nvfp4<kFloat>(load_shared_16(unit_address + 16 * lane), load_shared_2(unit_address + kUnitCodeBytes + 2 * lane),
                       a);
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
      if (n == 0 || n < steps) multiply_step<kFloat>(acc[n], a + 4 * s, b[n][2 * s], b[n][2 * s + 1]);
}

/// acc += sum over groups of scale * (unit x tokens): each group's partial sum is fp32, and so is its product.
template <Format kFormat, Float16 kFloat, int kSteps>
__device__ inline void multiply_unit_on_sum(UInt32 unit_address, UInt32 lane, const UnitScales& scales,
                                            const UInt32 (&b)[kSteps][8], int steps, float (&acc)[kSteps][4]) {
  const uint4 codes = load_shared_16(unit_address + 16 * lane);
  const UInt32 words[4] = {codes.x, codes.y, codes.z, codes.w};
  UInt32 a[8];  // steps s and s + 1 of mxfp4, step s of int4
  const Int32 span_mask = 4 / scales.spans - 1;  // a span ends after step s when (s & mask) == mask
  UInt32 minus_zero[2] = {minus_zero_pair<kFloat>(8), minus_zero_pair<kFloat>(8)};
  float part[kSteps][4];
  Int32 span = 0;
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    if ((s & span_mask) == 0) {
#pragma unroll
      for (int n = 0; n < kSteps; ++n) part[n][0] = part[n][1] = part[n][2] = part[n][3] = 0.0f;
      if (kFormat == Format::int4_zp) {
        minus_zero[0] = minus_zero_pair<kFloat>(load_shared_1(scales.zero_address + span));
        minus_zero[1] = minus_zero_pair<kFloat>(load_shared_1(scales.zero_address + scales.spans + span));
      }
    }
    const int half = kFormat == Format::mxfp4 ? s % 2 : 0;
    if (kFormat != Format::mxfp4) {
      unpack_int4_step<kFloat>(words[s], minus_zero, a);
    } else if (half == 0) {
      unpack_mxfp4_steps<kFloat>(words[s], words[s + 1], a);
    }
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
      if (n == 0 || n < steps) multiply_step<kFloat>(part[n], a + 4 * half, b[n][2 * s], b[n][2 * s + 1]);
    if ((s & span_mask) == span_mask) {
      const float low = span_scale<kFormat>(scales, 0, span), high = span_scale<kFormat>(scales, 1, span);
#pragma unroll
      for (int n = 0; n < kSteps; ++n) {
        acc[n][0] = __fmaf_rn(low, part[n][0], acc[n][0]);
        acc[n][1] = __fmaf_rn(low, part[n][1], acc[n][1]);
        acc[n][2] = __fmaf_rn(high, part[n][2], acc[n][2]);
        acc[n][3] = __fmaf_rn(high, part[n][3], acc[n][3]);
      }
      ++span;
    }
  }
}

/// What a sum over units is multiplied by, besides the global scale.
template <Format kFormat>
__device__ inline float operand_factor() {
  return kFormat == Format::nvfp4 ? kOperandFactor : 1.0f;
}

}  // namespace fourfold::kernels
