// Micro-kernels for AVX2 with FMA and F16C: eight fp32 lanes, two registers a panel.
#include <immintrin.h>

#include <cstdint>

#include "cpu/micro_kernel_table.h"

namespace fourfold::cpu {
namespace {

struct Avx2 {
  static constexpr int kWidth = 8;
  static constexpr int kSlots = 8;
  static constexpr int kDirectTile = 3;
  static constexpr int kBlockPanels = 1;
  static constexpr int kBlockTokens = 6;  // 12 sums of the group, two weights, one x: 15 of 16 registers
  static constexpr bool kRowSumsInMemory = true;
  /// 16 registers: few tokens take several panels, so that enough sums are in flight to hide the FMA's latency.
  static constexpr int direct_panels(int tokens) { return tokens == 1 ? 2 : 1; }
  typedef float Floats __attribute__((vector_size(32)));
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  typedef std::int32_t SignedWords __attribute__((vector_size(32)));
  using Weight = Floats;
  using Input = Floats;

  static Floats zero() { return Floats{}; }
  static Floats broadcast(float value) { return (Floats)_mm256_set1_ps(value); }
  static Floats load(const float* p) { return (Floats)_mm256_loadu_ps(p); }
  static void store(float* p, Floats value) { _mm256_storeu_ps(p, (__m256)value); }
  static Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
  static Floats dot(Floats sum, Weight w, Input x) { return fma(w, x, sum); }
  static void prefetch(const std::uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  static Words load_words(const std::uint8_t* p) {
    return (Words)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Input input(const std::uint8_t* p) {
    float value;
    __builtin_memcpy(&value, p, sizeof value);
    return broadcast(value);
  }
  static Weight load_weight(const std::uint8_t* p) { return (Floats)load_words(p); }
  static void store_weight(std::uint8_t* p, Weight value) {
    _mm256_storeu_ps(reinterpret_cast<float*>(p), (__m256)value);
  }
  static void store_activated(std::uint8_t* row, int column, Floats value) { store_weight(row + 4 * column, value); }

  static Words no_zero_points() { return (Words)_mm256_set1_epi32(8); }
  static Words zero_points(const std::uint8_t* p) {
    return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  /// Position `slot` of a half step: even positions in the low half-word, odd ones in the high (nibble order).
  template <Codes kCodes>
  static Weight weight(Words words, int slot, Words zeros) {
    const int shift = (slot & 1) * 16 + (slot >> 1) * 4;
    if constexpr (kCodes == Codes::e2m1) {
      const __m256 magnitudes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
      const __m256 magnitude = _mm256_permutevar8x32_ps(magnitudes, (__m256i)(words >> shift));  // low 3 bits select
      const Words sign = (words << (28 - shift)) & 0x80000000u;
      return (Floats)((Words)magnitude | sign);
    } else {
      return (Floats)_mm256_cvtepi32_ps((__m256i)(((words >> shift) & 15u) - zeros));
    }
  }

  template <Scales kScales>
  static Floats scale(const std::uint8_t* p) {
    if constexpr (kScales == Scales::e4m3) {
      // Shifted by 7 an E4M3 value is an f16 value times 2^8 (bias 15 against 7), subnormals included.
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
      const __m128i f16 = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7), _mm_set1_epi16(0xbfff - 0x10000));
      const Floats value = (Floats)_mm256_cvtph_ps(f16) * broadcast(256.0f);
      const Words code = (Words)_mm256_cvtepu8_epi32(bytes) & 0x7fu;
      return code == 0x7fu ? broadcast(__builtin_nanf("")) : value;
    } else if constexpr (kScales == Scales::e8m0) {
      const Words code = (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
      const Words bits = code << 23 | (code == 0u ? Words{} + 0x00400000u : Words{});  // byte 0: 2^-127, a subnormal
      return (Floats)(code == 255u ? Words{} + 0x7fc00000u : bits);
    } else if constexpr (kScales == Scales::bf16) {
      const __m256i half_words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      return (Floats)_mm256_slli_epi32(half_words, 16);
    } else if constexpr (kScales == Scales::f16) {
      return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    } else {
      return (Floats)load_words(p);
    }
  }
};

}  // namespace

const MicroKernels& micro_kernels_avx2() {
  static constexpr MicroKernels kTable = make_table<Avx2>("avx2");
  return kTable;
}

}  // namespace fourfold::cpu
