// What 4-bit codes and their scales mean: OCP Microscaling Formats (MX) v1.0, 5.3 (E2M1, E8M0); OCP 8-bit Floating
// Point (OFP8) v1.0 (E4M3, the FN variant); int4 is (code - zero) * scale.
#pragma once

#include "device/float16.cuh"
#include "params/moe_params.h"

namespace fourfold::kernels {

/// The weight format with its zero points (the macro FORMAT).
enum class Format { nvfp4, mxfp4, int4, int4_zp };

/// E2M1 in halves, exact: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
__device__ inline Int32 e2m1_halves(UInt32 code) {
  const Int32 exponent = static_cast<Int32>(code >> 1 & 3u), mantissa = static_cast<Int32>(code & 1u);
  const Int32 magnitude = exponent == 0 ? mantissa : (2 | mantissa) << (exponent - 1);
  return code & 8u ? -magnitude : magnitude;
}

/// 1 sign, 4 exponent (bias 7), 3 mantissa bits; subnormals in steps of 2^-9; 0x7f and 0xff are NaN.
__device__ inline float e4m3_to_float(UInt8 byte) {
  const UInt32 sign = static_cast<UInt32>(byte & 0x80u) << 24;
  const UInt32 magnitude = byte & 0x7fu;
  if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
  if (magnitude >= 8u) return __uint_as_float(sign | ((magnitude << 20) + (120u << 23)));
  return __uint_as_float(sign | __float_as_uint(__fmul_rn(static_cast<float>(magnitude), 0x1p-9f)));
}

/// 2^(byte - 127): byte 0 is the fp32 subnormal 2^-127, byte 255 is NaN.
__device__ inline float e8m0_to_float(UInt8 byte) {
  if (byte == 255) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(byte == 0 ? 0x00400000u : static_cast<UInt32>(byte) << 23);
}

/// The scale of group `group` in a row of scales. A row of fp32 scales is aligned to 4 bytes, of 16-bit ones to 2.
template <Format kFormat>
__device__ inline float scale_value(const void* row, Int64 group, ScaleType type) {
  if (kFormat == Format::nvfp4) return e4m3_to_float(static_cast<const UInt8*>(row)[group]);
  if (kFormat == Format::mxfp4) return e8m0_to_float(static_cast<const UInt8*>(row)[group]);
  if (type == ScaleType::f32) return static_cast<const float*>(row)[group];
  const UInt16 bits = static_cast<const UInt16*>(row)[group];
  return type == ScaleType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

/// A code as a small integer; times code_unit() it is the code's value.
template <Format kFormat>
__device__ inline Int32 code_integer(UInt32 code, Int32 zero) {
  return kFormat == Format::nvfp4 || kFormat == Format::mxfp4 ? e2m1_halves(code) : static_cast<Int32>(code) - zero;
}

/// What a step of code_integer() is worth, divided by sum_factor(): integer * unit * scale is the fp32 weight that a
/// dot product uses. It is exact for nvfp4, mxfp4 and 16-bit int4 scales and one rounding for fp32 scales, subnormals
/// included. For mxfp4 it is an eighth of the weight: 6 * 2^127 would leave fp32, 6/8 * 2^127 does not, and at the
/// other end 1/16 * 2^-127 is still a subnormal that fp32 holds.
template <Format kFormat>
__device__ inline float code_unit() {
  return kFormat == Format::nvfp4 ? 0.5f : kFormat == Format::mxfp4 ? 0.0625f : 1.0f;
}

template <Format kFormat>
__device__ inline float sum_factor() {
  return kFormat == Format::mxfp4 ? 8.0f : 1.0f;
}

}  // namespace fourfold::kernels
