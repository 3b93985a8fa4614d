// bf16 and fp16 as bit patterns: exact widening, narrowing to nearest even (IEEE 754-2019, 4.3.1). Nothing is flushed.
#pragma once

#include "params/integers.h"

namespace fourfold::kernels {

/// Element type of x, of the activated intermediate and of out (the macro DTYPE).
enum class Float16 { bf16, f16 };

__device__ inline float bf16_to_float(UInt16 bits) { return __uint_as_float(static_cast<UInt32>(bits) << 16); }

/// The exponent and mantissa bits, read as fp32, are the magnitude times 2^-112, a subnormal for a subnormal: one exact
/// product moves them. Infinity and NaN keep their meaning.
__device__ inline float f16_to_float(UInt16 bits) {
  const UInt32 sign = static_cast<UInt32>(bits & 0x8000u) << 16;
  const UInt32 moved = static_cast<UInt32>(bits & 0x7fffu) << 13;
  const UInt32 finite = __float_as_uint(__fmul_rn(__uint_as_float(moved), 0x1p112f));
  return __uint_as_float(sign | (moved >= 0x0f800000u ? moved | 0x7f800000u : finite));
}

/// NaN stays NaN (quiet); overflow goes to infinity.
__device__ inline UInt16 float_to_bf16(float value) {
  const UInt32 bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<UInt16>((bits >> 16) | 0x40u);
  return static_cast<UInt16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// NaN stays NaN (quiet); 65520, the middle between the largest number and the next step, and more go to infinity.
__device__ inline UInt16 float_to_f16(float value) {
  const UInt32 bits = __float_as_uint(value);
  const UInt32 sign = (bits >> 16) & 0x8000u;
  const UInt32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<UInt16>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<UInt16>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 makes the fp32 adder round at 2^-24
    const float shifted = __fadd_rn(__uint_as_float(magnitude), 0.5f);
    return static_cast<UInt16>(sign | (__float_as_uint(shifted) - 0x3f000000u));
  }
  const UInt32 rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<UInt16>(sign | ((rounded - 0x38000000u) >> 13));
}

template <Float16 kFloat>
__device__ inline float widen(UInt16 bits) {
  return kFloat == Float16::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

template <Float16 kFloat>
__device__ inline UInt16 narrow(float value) {
  return kFloat == Float16::bf16 ? float_to_bf16(value) : float_to_f16(value);
}

}  // namespace fourfold::kernels
