// What the two AVX-512 policies share: fp32 lanes and scales. Internal linkage, as in micro_kernel_loops.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/micro_kernel_loops.h"

namespace fourfold::cpu {
namespace {

struct Avx512Common {
  static constexpr int kWidth = 16;
  static constexpr int kDirectTile = 6;
  static constexpr int kBlockPanels = 2;
  static constexpr int kBlockTokens = 6;  // 2 x 6 sums of the group, 2 x 6 of the row, weights and x: 32 registers
  static constexpr bool kRowSumsInMemory = false;
  /// One token takes four panels, so that enough sums are in flight to hide the dot product's latency.
  static constexpr int direct_panels(int tokens) { return tokens <= 2 ? 4 : 2; }
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  typedef std::int32_t SignedWords __attribute__((vector_size(64)));

  static Floats zero() { return Floats{}; }
  static Floats broadcast(float value) { return (Floats)_mm512_set1_ps(value); }
  static Floats load(const float* p) { return (Floats)_mm512_loadu_ps(p); }
  static void store(float* p, Floats value) { _mm512_storeu_ps(p, (__m512)value); }
  static Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
  static void prefetch(const std::uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  static Words load_words(const std::uint8_t* p) { return (Words)_mm512_loadu_si512(p); }
  static Words load_bytes(const std::uint8_t* p) {
    return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  template <Scales kScales>
  static Floats scale(const std::uint8_t* p) {
    if constexpr (kScales == Scales::e4m3) {
      // Shifted by 7 an E4M3 value is an f16 value times 2^8 (bias 15 against 7), subnormals included.
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
      const __m512 value = _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16(0xbfff - 0x10000)));
      const __m128i code = _mm_and_si128(bytes, _mm_set1_epi8(0x7f));
      const __mmask16 number = _mm_cmpneq_epi8_mask(code, _mm_set1_epi8(0x7f));
      return (Floats)_mm512_mask_mul_ps(_mm512_set1_ps(__builtin_nanf("")), number, value, _mm512_set1_ps(256.0f));
    } else if constexpr (kScales == Scales::e8m0) {
      const __m512i code = (__m512i)load_bytes(p);
      const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(code, 23), _mm512_set1_epi32(0x00400000));  // 0: 2^-127
      const __mmask16 nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(255));
      return (Floats)_mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7fc00000));
    } else if constexpr (kScales == Scales::bf16) {
      const __m256i half_words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half_words), 16);
    } else if constexpr (kScales == Scales::f16) {
      return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    } else {
      return (Floats)load_words(p);
    }
  }
};

}  // namespace
}  // namespace fourfold::cpu
