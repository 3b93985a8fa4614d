// Micro-kernels for AVX-512 with the bf16 dot product: a 32-bit word is a pair of reduction positions. Code values and
// differences of code and zero point are exact in bf16; scales stay in fp32.
#include <immintrin.h>

#include <cstdint>

#include "cpu/micro_kernel_avx512.h"
#include "cpu/micro_kernel_table.h"

namespace fourfold::cpu {
namespace {

/// bf16 bits of a small whole or half number.
constexpr std::uint16_t bf16_bits(float value) {
  return static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, value) >> 16);
}

struct alignas(64) Table {
  std::uint16_t entries[32];
};
/// 16 code values, twice: the permutation reads 5 bits, of which the highest belongs to the next code.
constexpr Table e2m1_table() {
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  Table table{};
  for (int i = 0; i < 32; ++i) table.entries[i] = bf16_bits((i & 8) ? -kValues[i & 7] : kValues[i & 7]);
  return table;
}
constexpr Table int4_table() {
  Table table{};
  for (int i = 0; i < 32; ++i) table.entries[i] = bf16_bits(static_cast<float>((i & 15) - 8));
  return table;
}
/// Indexed by code + 16 - zero point.
constexpr Table difference_table() {
  Table table{};
  for (int i = 0; i < 32; ++i) table.entries[i] = bf16_bits(static_cast<float>(i - 16));
  return table;
}
constexpr Table kE2m1 = e2m1_table();
constexpr Table kInt4 = int4_table();
constexpr Table kDifference = difference_table();

struct Avx512Bf16 : Avx512Common {
  static constexpr int kSlots = 4;
  using Weight = Words;  // 16 rows x 2 positions
  using Input = Words;

  static Floats dot(Floats sum, Weight w, Input x) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
  }
  static Input input(const std::uint8_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return (Words)_mm512_set1_epi32(pair);
  }
  static Weight load_weight(const std::uint8_t* p) { return load_words(p); }
  static void store_weight(std::uint8_t* p, Weight value) { _mm512_storeu_si512(p, (__m512i)value); }
  /// `value` is rounded to bf16 already.
  static void store_activated(std::uint8_t* row, int column, Floats value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 2 * column),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)value, 16)));
  }

  static Words no_zero_points() { return Words{}; }
  static Words zero_points(const std::uint8_t* p) {
    const Words offset = 16u - load_bytes(p);
    return offset | offset << 16;
  }
  /// Positions 2 slot and 2 slot + 1 of a half step, from the low nibbles of both half-words after one shift.
  template <Codes kCodes>
  static Weight weight(Words words, int slot, Words zeros) {
    const Words pair = words >> (4 * slot);
    if constexpr (kCodes == Codes::int4_zeros)
      return look_up(kDifference, (pair & 0x000f000fu) + zeros);
    else
      return look_up(kCodes == Codes::e2m1 ? kE2m1 : kInt4, pair);
  }
  static Weight look_up(const Table& table, Words index) {
    return (Words)_mm512_permutexvar_epi16((__m512i)index, _mm512_load_si512(table.entries));
  }
};

}  // namespace

const MicroKernels& micro_kernels_avx512_bf16() {
  static constexpr MicroKernels kTable = make_table<Avx512Bf16>("avx512_bf16");
  return kTable;
}

}  // namespace fourfold::cpu
