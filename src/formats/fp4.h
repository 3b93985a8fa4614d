// The small floats of 4-bit weights, exact both ways: E2M1 codes, E4M3 and E8M0 scales.
// OCP Microscaling Formats (MX) v1.0, 5.3 (E2M1, E8M0); OCP 8-bit Floating Point (OFP8) v1.0 (E4M3, the FN variant).
// Everything here is pure, constexpr and independent of the rounding mode, fast-math and flush-to-zero.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace fourfold {

inline constexpr float kE2m1Max = 6.0f;
inline constexpr float kE4m3Max = 448.0f;

/// 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; code 8 is -0.
inline constexpr std::array<float, 16> kE2m1Values{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// Value of the low four bits of `code`; the sign of zero is kept.
constexpr float e2m1_value(std::uint8_t code) noexcept { return kE2m1Values[code & 15u]; }

/// Nearest code, ties to the even code, saturating at +-6 (infinities too). A negative value that rounds to zero is
/// code 8, so -0 survives a round trip. NaN has no code: callers refuse it first (quantize_matrix does); here it
/// becomes a zero.
constexpr std::uint8_t e2m1_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const float a = std::bit_cast<float>(bits & 0x7fffffffu);
  // Midpoints of neighbours; a tie goes up (>=) exactly where the upper code is the even one.
  const int code = int{a > 0.25f} + int{a >= 0.75f} + int{a > 1.25f} + int{a >= 1.75f} + int{a > 2.5f} +
                   int{a >= 3.5f} + int{a > 5.0f};
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(code) | ((bits >> 28) & 8u));
}

/// Value of an E4M3 byte: 1 sign, 4 exponent (bias 7), 3 mantissa bits; subnormals in steps of 2^-9; 0x7f and 0xff
/// are NaN; there is no infinity.
constexpr float e4m3_value(std::uint8_t byte) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(byte & 0x80u) << 24;
  const std::uint32_t magnitude = byte & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(subnormal) | sign);
}

/// Nearest byte, ties to even, saturating at +-448 (infinities too); the sign of zero is kept; NaN gives 0x7f.
constexpr std::uint8_t e4m3_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);  // 448 and more
  if (magnitude < 0x3c800000u) {  // below 2^-6: adding 2^14 makes the fp32 adder round at its ulp there, 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x46800000u));
  }
  const std::uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

/// 2^(byte - 127): byte 0 is the fp32 subnormal 2^-127, byte 127 is 1, byte 255 is NaN.
constexpr float e8m0_value(std::uint8_t byte) noexcept {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : static_cast<std::uint32_t>(byte) << 23);
}

}  // namespace fourfold
