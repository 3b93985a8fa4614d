// Sixteen fp32 lanes in two AVX2 registers: the vocabulary of ops_rows.h. Only for files compiled for AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace fourfold::cpu {
namespace {

struct Vec {
  __m256 low, high;
};
inline constexpr int kPanelsOne = 4, kPanelsFew = 2, kPanelsMany = 1;  // panels a tile holds for 1, 2, 3.. tokens
inline constexpr int kTokensFew = 2, kTokensMany = 4;

inline Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
/// All ones in the lanes below n.
inline __m256i first(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec load_first(const float* p, std::int64_t n) {
  return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
}
inline void store_first(float* p, Vec v, std::int64_t n) {
  _mm256_maskstore_ps(p, first(n), v.low);
  _mm256_maskstore_ps(p + 8, first(n - 8), v.high);
}
inline Vec keep_first(Vec v, std::int64_t n, float other) {
  const __m256 fill = _mm256_set1_ps(other);
  return {_mm256_blendv_ps(fill, v.low, _mm256_castsi256_ps(first(n))),
          _mm256_blendv_ps(fill, v.high, _mm256_castsi256_ps(first(n - 8)))};
}
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Vec subtract(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Vec multiply(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Vec divide(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
/// max(a, b) per lane; b where either is NaN.
inline Vec maximum(Vec a, Vec b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Vec minimum(Vec a, Vec b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Vec nearest(Vec a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kMode), _mm256_round_ps(a.high, kMode)};
}
inline __m256 power_of_two(__m256i n) {  // -126 .. 127
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
/// a * 2^n for whole n within -252 .. 252, in two exact steps but for a subnormal end.
inline __m256 scale_half(__m256 a, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(a, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
}
inline Vec scale_by_power(Vec a, Vec n) { return {scale_half(a.low, n.low), scale_half(a.high, n.high)}; }
/// Lanes i and i + 1 of 16 bf16 pairs as two vectors.
inline void load_pairs(const void* p, Vec& even, Vec& odd) {
  const __m256i low = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  const __m256i high = _mm256_loadu_si256(static_cast<const __m256i*>(p) + 1);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
}
inline __m256 widen(__m128i half) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)); }
inline Vec load_bf16(const std::uint16_t* p) {
  return {widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + 1))};
}
/// Nearest even; NaN stays a quiet NaN. One bf16 in the low half of each 32-bit lane.
inline __m256i bf16_lanes(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
}
inline void store_bf16(std::uint16_t* p, Vec v) {
  const __m256i packed = _mm256_packus_epi32(bf16_lanes(v.low), bf16_lanes(v.high));  // in blocks 0 2 1 3
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0b11011000));
}
inline Vec round_to_bf16(Vec v) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bf16_lanes(v.low), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(bf16_lanes(v.high), 16))};
}

}  // namespace
}  // namespace fourfold::cpu
