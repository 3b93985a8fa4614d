// The 4-bit formats in double precision, from the OCP specifications' formulas (sign, exponent, mantissa): shares no
// code with src/. Slow and obvious on purpose.
#pragma once

#include <cstdint>
#include <vector>

namespace oracle {

/// A binary floating-point format below 32 bits.
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;     // IEEE: the top exponent is infinity and NaN
  bool all_ones_is_nan;  // E4M3: only the pattern of all ones is NaN
};
inline constexpr SmallFloat kE2m1{2, 1, 1, false, false};
inline constexpr SmallFloat kE4m3{4, 3, 7, false, true};
inline constexpr SmallFloat kBf16{8, 7, 127, true, false};
inline constexpr SmallFloat kF16{5, 10, 15, true, false};

/// Value of `bits` (sign on top); NaN and infinities as the format has them.
double value_of(const SmallFloat& format, std::uint32_t bits);
/// Bits of the nearest value, ties to the even mantissa. Beyond the largest: infinity where there is one (from half an
/// ulp above on), else the largest. The sign of zero is kept. Not for NaN.
std::uint32_t nearest(const SmallFloat& format, double value);
/// 2^(byte - 127), NaN for 255.
double e8m0(unsigned byte);

/// What a quantiser must make of a matrix [rows, k], one entry per position (codes) or group (the others).
struct Quantised {
  std::vector<int> codes, scales, zeros;  // scales: byte of E4M3 or E8M0, or bits of bf16
  float global = 1.0f;
};
struct QuantiseRule {
  std::int64_t rows, k, group;  // group: positions, already resolved for "whole row"
  bool four_over_six = false, zero_points = false;
};
Quantised quantise_nvfp4(const std::vector<float>& w, const QuantiseRule& rule);
Quantised quantise_mxfp4(const std::vector<float>& w, const QuantiseRule& rule);
Quantised quantise_int4(const std::vector<float>& w, const QuantiseRule& rule);

}  // namespace oracle
