// From the 32 codes that a lane holds of a unit to the wide operand of four m16n8k16 products. Every form is exact.
//
// a[4 s + r] of step s: r = 0 row g, r = 1 row g + 8 with the first two positions of the lane, r = 2 and 3 the same rows
// with the next two (PTX ISA, mma.m16n8k16, layout of A). In the words of a lane, pair j = 4 s + r.
#pragma once

#include "device/ptx_async.cuh"
#include "device/ptx_packed.cuh"
#include "device/weight_format.cuh"

namespace fourfold::kernels {

/// Group scales stay out of the operand where scale * code would round or leave the 16-bit range: they multiply fp32
/// partial sums instead. An E4M3 scale times an E2M1 code has at most 6 significant bits and fits both 16-bit types; an
/// eighth of an E8M0 scale times an E2M1 code fits bf16, subnormals included.
template <Format kFormat, Float16 kFloat>
constexpr bool kScaleOnSum = !(kFormat == Format::nvfp4 || (kFormat == Format::mxfp4 && kFloat == Float16::bf16));

/// What a sum over units is multiplied by, besides the global scale. nvfp4 operands carry weight * 2^-8: 6 * 448 and
/// 0.5 * 2^-9 stay exact in both types, as steps of 2^-10 become steps of 2^-18, which fp16 holds as a subnormal. mxfp4
/// operands carry an eighth: 6 * 2^127 would leave bf16, and 0.5 * 2^-127 / 8 = 2^-131 is a subnormal of bf16.
template <Format kFormat, Float16 kFloat>
constexpr float kOperandFactor = kScaleOnSum<kFormat, kFloat> ? 1.0f : kFormat == Format::nvfp4 ? 0x1p8f : 0x1p3f;

/// Eight bf16 pairs, each E2M1 value * 2^-126, from 16 codes in two words. A pair takes bits 15 (sign) and 8:6
/// (magnitude) of each half: read as bf16, that is the value times 2^-126, subnormals included. Pairs 0, 1, 2 of a word
/// lie where the word rotated left by 0, 4 and 10 has those bits; the bits left over, 0, 1, 9 and 10 of each half, hold
/// a fourth pair of the two words together: joined by one select, x's share in place and y's moved by 2, they are found
/// by rotating left by 6 and by 12. (No wanted bit wraps below 10: shifts do.)
__device__ inline void e2m1_pairs_bf16(UInt32 x, UInt32 y, UInt32* p) {
  constexpr UInt32 kPair = 0x81c081c0u, kLeft = 0x06030603u;
  const UInt32 z = (x & kLeft) | (y << 2 & ~kLeft);
  p[0] = x & kPair;
  p[1] = (x << 4) & kPair;
  p[2] = __funnelshift_l(x, x, 10) & kPair;
  p[3] = (z << 6) & kPair;
  p[4] = y & kPair;
  p[5] = (y << 4) & kPair;
  p[6] = __funnelshift_l(y, y, 10) & kPair;
  p[7] = __funnelshift_l(z, z, 12) & kPair;
}

/// Four fp16 pairs, each E2M1 value * 2^-14: nibble j of each half gives pair j, sign at bit 15, magnitude at 11:9. (No
/// placement of three pairs by rotation exists for these bits.)
__device__ inline void e2m1_pairs_f16(UInt32 x, UInt32* p) {
  constexpr UInt32 kSign = 0x80008000u, kMagnitude = 0x0e000e00u;
  p[0] = (x << 12 & kSign) | (x << 9 & kMagnitude);
  p[1] = (x << 8 & kSign) | (x << 5 & kMagnitude);
  p[2] = (x << 4 & kSign) | (x << 1 & kMagnitude);
  p[3] = (x & kSign) | (x >> 3 & kMagnitude);
}

/// Both halves of a word from one 16-bit value in the low half.
__device__ inline UInt32 twice(UInt32 low) { return __byte_perm(low, 0, 0x1010); }

/// The factor of nvfp4 pairs from byte kByte of `scales`: E4M3 without sign, 0xff for NaN. The byte moved to the
/// exponent and mantissa of the 16-bit type is the scale times 2^-120 (bf16) or 2^-8 (fp16), subnormals included; exact
/// products bring it to scale * 2^118 and scale * 2^6. 0xff becomes infinity or NaN (packing pairs it with zero codes,
/// and infinity * 0 is NaN).
template <Float16 kFloat, int kByte>
__device__ inline UInt32 e4m3_factor(UInt32 scales) {
  const UInt32 bytes = __byte_perm(scales, 0, 0x4040u | kByte << 8 | kByte);  // 0x00bb00bb
  if (kFloat == Float16::f16) return mul_f16x2(bytes << 7, 0x74007400u);      // 2^14
  constexpr UInt32 kTwoTo119 = 0x7b007b00u;
  return mul_bf16x2(mul_bf16x2(bytes << 4, kTwoTo119), kTwoTo119);
}

/// The operand registers of an nvfp4 lane. `scales`: byte 0 of row g, byte 1 of row g + 8.
template <Float16 kFloat>
__device__ inline void unpack_nvfp4(uint4 codes, UInt32 scales, UInt32 (&a)[16]) {
  const UInt32 factor[2] = {e4m3_factor<kFloat, 0>(scales), e4m3_factor<kFloat, 1>(scales)};
  if (kFloat == Float16::bf16) {
    e2m1_pairs_bf16(codes.x, codes.y, a);
    e2m1_pairs_bf16(codes.z, codes.w, a + 8);
  } else {
    e2m1_pairs_f16(codes.x, a);
    e2m1_pairs_f16(codes.y, a + 4);
    e2m1_pairs_f16(codes.z, a + 8);
    e2m1_pairs_f16(codes.w, a + 12);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i)
    a[i] = kFloat == Float16::bf16 ? mul_bf16x2(a[i], factor[i & 1]) : mul_f16x2(a[i], factor[i & 1]);
}

/// The operand registers of an mxfp4 lane in bf16: weight / 8. `scales`: E8M0 of row g in byte 0, of row g + 8 in byte
/// 2; the other bytes are ignored. A pair is its value * 2^-126, so the factor is 2^(scale - 4); from 2^128 on it takes
/// two products. Scale 255 is NaN.
__device__ inline void unpack_mxfp4_scaled(uint4 codes, UInt32 scales, UInt32* a) {
  constexpr UInt32 kBias = 123u << 16 | 123u;  // 127 - 4
  const UInt32 both = scales & 0x00ff00ffu;
  UInt32 exponents = both + kBias;
  const bool large = ((exponents + 0x00010001u) & 0x01000100u) != 0;  // 255 and more
  UInt32 more[2] = {0x3f803f80u, 0x3f803f80u};
  if (large) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const UInt32 scale = both >> 16 * row & 0xffu;
      if (scale < 132) continue;
      exponents = (exponents & ~(0x1ffu << 16 * row)) | 254u << 16 * row;
      more[row] = twice(scale == 255 ? 0x7fc0u : (scale - 4) << 7);
    }
  }
  const UInt32 factor[2] = {__byte_perm(exponents << 7, 0, 0x1010), __byte_perm(exponents << 7, 0, 0x3232)};
  e2m1_pairs_bf16(codes.x, codes.y, a);
  e2m1_pairs_bf16(codes.z, codes.w, a + 8);
#pragma unroll
  for (int i = 0; i < 16; ++i) a[i] = mul_bf16x2(a[i], factor[i & 1]);
  if (large)
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = mul_bf16x2(a[i], more[i & 1]);
}

/// The operand registers of one step of an mxfp4 lane in fp16: the values themselves.
__device__ inline void unpack_mxfp4_step_f16(UInt32 x, UInt32* a) {
  e2m1_pairs_f16(x, a);
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = mul_f16x2(a[i], 0x74007400u);  // 2^14
}

/// The operand registers of one step of an int4 lane: code - zero, an integer of -15 .. 15. A code or-ed into the low
/// mantissa bits of 128 (bf16) or 1024 (fp16) is 128 + code or 1024 + code.
template <Float16 kFloat>
__device__ inline void unpack_int4_step(UInt32 codes, const UInt32 (&minus_zero)[2], UInt32* a) {
  constexpr UInt32 kBase = kFloat == Float16::bf16 ? 0x43004300u : 0x64006400u;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const UInt32 pair = (codes >> 4 * r & 0x000f000fu) | kBase;
    a[r] = kFloat == Float16::bf16 ? add_bf16x2(pair, minus_zero[r & 1]) : add_f16x2(pair, minus_zero[r & 1]);
  }
}

/// -(128 + zero) or -(1024 + zero) in both halves.
template <Float16 kFloat>
__device__ inline UInt32 minus_zero_pair(UInt32 zero) {
  return twice(zero) | (kFloat == Float16::bf16 ? 0xc300c300u : 0xe400e400u);
}

}  // namespace fourfold::kernels
