// Sixteen fp32 lanes in one AVX-512 register: the vocabulary of ops_rows.h. Only for files compiled for AVX-512.
#pragma once

// gcc 12 takes its own undefined source operands for a fault (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>

namespace fourfold::cpu {
namespace {

using Vec = __m512;
inline constexpr int kPanelsOne = 8, kPanelsFew = 4, kPanelsMany = 2;  // panels a tile holds for 1, 2..4, 5.. tokens
inline constexpr int kTokensFew = 4, kTokensMany = 12;

inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline __mmask16 first(std::int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }  // 0 <= n <= 16
inline Vec load_first(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store_first(float* p, Vec v, std::int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
inline Vec keep_first(Vec v, std::int64_t n, float other) {
  return _mm512_mask_blend_ps(first(n), _mm512_set1_ps(other), v);
}
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec subtract(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec multiply(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec divide(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
/// max(a, b) per lane; b where either is NaN.
inline Vec maximum(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec minimum(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec nearest(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// a * 2^n for whole n within -252 .. 252.
inline Vec scale_by_power(Vec a, Vec n) { return _mm512_scalef_ps(a, n); }
/// Lanes i and i + 1 of 16 bf16 pairs as two vectors.
inline void load_pairs(const void* p, Vec& even, Vec& odd) {
  const __m512i pairs = _mm512_loadu_si512(p);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline Vec load_bf16(const std::uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
/// Nearest even; NaN stays a quiet NaN.
inline __m256i to_bf16_bits(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
inline void store_bf16(std::uint16_t* p, Vec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16_bits(v)); }
inline Vec round_to_bf16(Vec v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(to_bf16_bits(v)), 16));
}

}  // namespace
}  // namespace fourfold::cpu
