// The product of a unit (16 rows x 64 positions of packed weights) in shared memory with 8 to 8 * kSteps tokens,
// both in shared memory.
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

/// The narrow operand of a unit: words 2 s and 2 s + 1 of step s, of one token. Which positions a lane's step covers is
/// free as long as both operands agree:
///   scales in the operand   16 t + 4 s .. + 3: a lane's 32 codes are 16 neighbours in each of two rows, so one scale
///                           serves 16 codes
///   scales on sums          16 s + 4 t .. + 3: a step covers 16 neighbours, so a partial sum belongs to one group
/// `row`: shared address of position 0 of the block.
template <bool kOnSum>
__device__ inline void load_token(UInt32 row, UInt32 t, UInt32 (&b)[8]) {
  if (kOnSum) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint2 v = load_shared_8(row + 32 * s + 8 * t);
      b[2 * s] = v.x;
      b[2 * s + 1] = v.y;
    }
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 v = load_shared_16(row + 32 * t + 16 * h);
      b[4 * h] = v.x;
      b[4 * h + 1] = v.y;
      b[4 * h + 2] = v.z;
      b[4 * h + 3] = v.w;
    }
  }
}

/// acc += unit x tokens with scales in the operand, times 1 / operand_factor.
template <Format kFormat, Float16 kFloat, int kSteps>
__device__ inline void multiply_unit_scaled(UInt32 unit, UInt32 lane, const UInt32 (&b)[kSteps][8], int steps,
                                            float (&acc)[kSteps][4]) {
  UInt32 a[16];
  const uint4 codes = load_shared_16(unit + 16 * lane);
  if constexpr (kFormat == Format::nvfp4) {
    unpack_nvfp4<kFloat>(codes, load_shared_2(unit + kUnitCodeBytes + 2 * lane), a);
  } else {  // [8 g][row g, row g + 8][2 spans of 32 positions]
    unpack_mxfp4_scaled(codes, load_shared_4(unit + kUnitCodeBytes + 4 * (lane / 4)) >> 4 * (lane & 2), a);
  }
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int n = 0; n < kSteps; ++n)
      if (n == 0 || n < steps) multiply_step<kFloat>(acc[n], a + 4 * s, b[n][2 * s], b[n][2 * s + 1]);
}

/// Scales, and of int4 minus the zero points (8 without), of rows g and g + 8 of a unit whose scales multiply sums. They lie behind
/// the codes, [8 g][row g, row g + 8][spans], scales first.
template <Format kFormat, Float16 kFloat, int kSpans>
struct SumScales {
  float scale[2 * kSpans];         // [row][span]
  UInt32 minus_zero[2 * kSpans];  // both halves

  __device__ SumScales(const UnitMatrix& m, UInt32 unit, UInt32 lane) {
    const UInt32 first = lane / 4 * 2 * kSpans, scales = unit + kUnitCodeBytes;
    Int32 scale_bytes = 2;
    if (kFormat == Format::mxfp4) {
      scale_bytes = 1;
#pragma unroll
      for (int i = 0; i < 2 * kSpans; ++i)
        scale[i] = e8m0_to_float(static_cast<UInt8>(load_shared_1(scales + first + i)));
    } else if (static_cast<ScaleType>(m.scale_type) == ScaleType::f32) {
      scale_bytes = 4;
#pragma unroll
      for (int i = 0; i < 2 * kSpans; ++i) scale[i] = __uint_as_float(load_shared_4(scales + 4 * (first + i)));
    } else {
      const bool bf16 = static_cast<ScaleType>(m.scale_type) == ScaleType::bf16;
#pragma unroll
      for (int i = 0; i < kSpans; ++i) {
        const UInt32 two = load_shared_4(scales + 2 * first + 4 * i);
        scale[2 * i] = bf16 ? __uint_as_float(two << 16) : f16_to_float(static_cast<UInt16>(two));
        scale[2 * i + 1] = bf16 ? __uint_as_float(two & 0xffff0000u) : f16_to_float(static_cast<UInt16>(two >> 16));
      }
    }
    if (kFormat == Format::mxfp4) return;
    const bool zero_points = m.unit_bytes > kUnitCodeBytes + kUnitRows * kSpans * scale_bytes;
#pragma unroll
    for (int i = 0; i < 2 * kSpans; ++i)
      minus_zero[i] = minus_zero_pair<kFloat>(
          zero_points ? load_shared_1(scales + kUnitRows * kSpans * scale_bytes + first + i) : 8);
  }
};

/// acc += sum over spans of scale * (unit x tokens): each span's partial sum is fp32, and so is its product.
template <Format kFormat, Float16 kFloat, int kSpans, int kSteps>
__device__ inline void multiply_unit_on_sum(const UnitMatrix& m, UInt32 unit, UInt32 lane,
                                            const UInt32 (&b)[kSteps][8], int steps, float (&acc)[kSteps][4]) {
  constexpr int kStepsOfSpan = 4 / kSpans;
  const uint4 codes = load_shared_16(unit + 16 * lane);
  const UInt32 words[4] = {codes.x, codes.y, codes.z, codes.w};
  const SumScales<kFormat, kFloat, kSpans> scales(m, unit, lane);
#pragma unroll
  for (int span = 0; span < kSpans; ++span) {
    float part[kSteps][4] = {};
#pragma unroll
    for (int i = 0; i < kStepsOfSpan; ++i) {
      const int s = span * kStepsOfSpan + i;
      UInt32 a[4];
      if constexpr (kFormat == Format::mxfp4) {
        unpack_mxfp4_step_f16(words[s], a);
      } else {
        const UInt32 minus_zero[2] = {scales.minus_zero[span], scales.minus_zero[kSpans + span]};
        unpack_int4_step<kFloat>(words[s], minus_zero, a);
      }
#pragma unroll
      for (int n = 0; n < kSteps; ++n)
        if (n == 0 || n < steps) multiply_step<kFloat>(part[n], a, b[n][2 * s], b[n][2 * s + 1]);
    }
    const float low = scales.scale[span], high = scales.scale[kSpans + span];
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
      if (n > 0 && n >= steps) continue;
      acc[n][0] = __fmaf_rn(low, part[n][0], acc[n][0]);
      acc[n][1] = __fmaf_rn(low, part[n][1], acc[n][1]);
      acc[n][2] = __fmaf_rn(high, part[n][2], acc[n][2]);
      acc[n][3] = __fmaf_rn(high, part[n][3], acc[n][3]);
    }
  }
}

}  // namespace fourfold::kernels
