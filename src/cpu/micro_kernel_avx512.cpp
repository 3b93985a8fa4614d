// Micro-kernels for AVX-512 (F, BW, VL, DQ) with fp32 FMA: sixteen lanes, one register a panel.
#include "cpu/micro_kernel_avx512.h"

#include <immintrin.h>

#include <cstdint>

#include "cpu/micro_kernel_table.h"

namespace fourfold::cpu {
namespace {

struct Avx512 : Avx512Common {
  static constexpr int kSlots = 8;
  using Weight = Floats;
  using Input = Floats;

  static Floats dot(Floats sum, Weight w, Input x) { return fma(w, x, sum); }
  static Input input(const std::uint8_t* p) {
    float value;
    __builtin_memcpy(&value, p, sizeof value);
    return broadcast(value);
  }
  static Weight load_weight(const std::uint8_t* p) { return (Floats)load_words(p); }
  static void store_weight(std::uint8_t* p, Weight value) { store(reinterpret_cast<float*>(p), value); }
  static void store_activated(std::uint8_t* row, int column, Floats value) { store_weight(row + 4 * column, value); }

  static Words no_zero_points() { return Words{}; }
  /// The zero points as fp32 bits: code - zero is exact in fp32.
  static Words zero_points(const std::uint8_t* p) { return (Words)_mm512_cvtepi32_ps((__m512i)load_bytes(p)); }
  /// Position `slot` of a half step: even positions in the low half-word, odd ones in the high (nibble order).
  template <Codes kCodes>
  static Weight weight(Words words, int slot, Words zeros) {
    const __m512i index = (__m512i)(words >> ((slot & 1) * 16 + (slot >> 1) * 4));  // the low 4 bits select
    if constexpr (kCodes == Codes::e2m1) {
      const __m512 values = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
      return (Floats)_mm512_permutexvar_ps(index, values);
    } else if constexpr (kCodes == Codes::int4) {
      const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
      return (Floats)_mm512_permutexvar_ps(index, values);
    } else {
      const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      return (Floats)_mm512_permutexvar_ps(index, values) - (Floats)zeros;
    }
  }
};

}  // namespace

const MicroKernels& micro_kernels_avx512() {
  static constexpr MicroKernels kTable = make_table<Avx512>("avx512");
  return kTable;
}

}  // namespace fourfold::cpu
