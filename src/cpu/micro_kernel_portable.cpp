// Micro-kernels of the baseline: compiler vectors of four fp32 lanes and table look-ups, any machine.
#include <cstdint>

#include "cpu/micro_kernel_table.h"

namespace fourfold::cpu {
namespace {

struct Portable {
  static constexpr int kWidth = 4;
  static constexpr int kSlots = 8;
  static constexpr int kDirectTile = 2;
  static constexpr int kBlockPanels = 1;
  static constexpr int kBlockTokens = 2;
  static constexpr bool kRowSumsInMemory = true;
  static constexpr int direct_panels(int) { return 1; }
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::uint32_t Words __attribute__((vector_size(16)));
  typedef std::int32_t SignedWords __attribute__((vector_size(16)));
  using Weight = Floats;
  using Input = Floats;

  static Floats zero() { return Floats{}; }
  static Floats broadcast(float value) { return Floats{value, value, value, value}; }
  static Floats load(const float* p) {
    Floats value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
  }
  static void store(float* p, Floats value) { __builtin_memcpy(p, &value, sizeof value); }
  static Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
  static Floats dot(Floats sum, Weight w, Input x) { return sum + w * x; }
  static void prefetch(const std::uint8_t* p) { __builtin_prefetch(p, 0, 2); }
  static Words load_words(const std::uint8_t* p) {
    Words value;
    __builtin_memcpy(&value, p, sizeof value);
    return value;
  }
  static Input input(const std::uint8_t* p) {
    float value;
    __builtin_memcpy(&value, p, sizeof value);
    return broadcast(value);
  }
  static Weight load_weight(const std::uint8_t* p) { return (Floats)load_words(p); }
  static void store_weight(std::uint8_t* p, Weight value) { __builtin_memcpy(p, &value, sizeof value); }
  static void store_activated(std::uint8_t* row, int column, Floats value) {
    __builtin_memcpy(row + 4 * column, &value, sizeof value);
  }

  static Words no_zero_points() { return Words{8, 8, 8, 8}; }
  static Words zero_points(const std::uint8_t* p) { return Words{p[0], p[1], p[2], p[3]}; }
  /// Position `slot` of a half step: even positions in the low half-word, odd ones in the high (nibble order).
  template <Codes kCodes>
  static Weight weight(Words words, int slot, Words zeros) {
    const Words code = (words >> ((slot & 1) * 16 + (slot >> 1) * 4)) & 15u;
    if constexpr (kCodes == Codes::e2m1) {
      static constexpr float kValues[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
      return Floats{kValues[code[0]], kValues[code[1]], kValues[code[2]], kValues[code[3]]};
    } else {
      return __builtin_convertvector((SignedWords)(code - zeros), Floats);
    }
  }

  static float float_of(std::uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  static std::uint32_t half_word(const std::uint8_t* p) { return p[0] | std::uint32_t{p[1]} << 8; }
  template <Scales kScales>
  static float one_scale(const std::uint8_t* p) {
    if constexpr (kScales == Scales::e4m3) {
      const std::uint32_t byte = *p, magnitude = byte & 0x7fu, sign = (byte & 0x80u) << 24;
      if (magnitude == 0x7fu) return float_of(sign | 0x7fc00000u);
      if (magnitude < 8) return float_of(sign | 0x3f800000u) * (static_cast<float>(magnitude) * 0x1p-9f);
      return float_of(sign | ((magnitude << 20) + (120u << 23)));
    } else if constexpr (kScales == Scales::e8m0) {
      return float_of(*p == 255 ? 0x7fc00000u : *p == 0 ? 0x00400000u : std::uint32_t{*p} << 23);
    } else if constexpr (kScales == Scales::bf16) {
      return float_of(half_word(p) << 16);
    } else if constexpr (kScales == Scales::f16) {
      const std::uint32_t bits = half_word(p), sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
      if (magnitude < 0x400u) return float_of(sign | 0x3f800000u) * (static_cast<float>(magnitude) * 0x1p-24f);
      if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);  // infinity, NaN
      return float_of(sign | ((magnitude << 13) + (112u << 23)));
    } else {
      return float_of(half_word(p) | half_word(p + 2) << 16);
    }
  }
  template <Scales kScales>
  static Floats scale(const std::uint8_t* p) {
    constexpr int kBytes = scale_bytes<kScales>();
    return Floats{one_scale<kScales>(p), one_scale<kScales>(p + kBytes), one_scale<kScales>(p + 2 * kBytes),
                  one_scale<kScales>(p + 3 * kBytes)};
  }
};

}  // namespace

const MicroKernels& micro_kernels_portable() {
  static constexpr MicroKernels kTable = make_table<Portable>("portable");
  return kTable;
}

}  // namespace fourfold::cpu
