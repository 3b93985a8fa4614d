// Formulas of OCP MX v1.0 (5.3) and OFP8 v1.0, and the quantisers' rules position by position.
#include "oracle/format_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace oracle {
namespace {

// Nearest integer, ties to even, without the rounding mode.
double round_half_even(double x) {
  const double below = std::floor(x), rest = x - below;
  if (rest < 0.5) return below;
  if (rest > 0.5) return below + 1;
  return std::fmod(below, 2.0) == 0.0 ? below : below + 1;
}

std::uint32_t sign_bit(const SmallFloat& format) { return 1u << (format.exponent_bits + format.mantissa_bits); }

std::uint32_t largest_finite_bits(const SmallFloat& format) {
  const std::uint32_t all = sign_bit(format) - 1;
  if (format.has_infinity) return all - (1u << format.mantissa_bits);
  return format.all_ones_is_nan ? all - 1 : all;
}

}  // namespace

double value_of(const SmallFloat& format, std::uint32_t bits) {
  const double sign = (bits & sign_bit(format)) != 0 ? -1.0 : 1.0;
  const std::uint32_t magnitude = bits & (sign_bit(format) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const double fraction =
      std::ldexp(static_cast<double>(magnitude & ((1u << format.mantissa_bits) - 1)), -format.mantissa_bits);
  if (format.has_infinity && exponent == (1 << format.exponent_bits) - 1)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (format.all_ones_is_nan && magnitude == sign_bit(format) - 1) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - format.bias);
  return sign * std::ldexp(1 + fraction, exponent - format.bias);
}

std::uint32_t nearest(const SmallFloat& format, double value) {
  const std::uint32_t sign = std::signbit(value) ? sign_bit(format) : 0;
  const double a = std::fabs(value);
  const std::uint32_t top = largest_finite_bits(format);
  // Magnitudes grow with their bits: bisect for the largest that is not above `a`.
  std::uint32_t low = 0, high = top;
  while (low < high) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (value_of(format, middle) <= a)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == top) {
    const double ulp = value_of(format, top) - value_of(format, top - 1);
    return sign | (format.has_infinity && a >= value_of(format, top) + ulp / 2 ? top + 1 : top);
  }
  const double below = a - value_of(format, low), above = value_of(format, low + 1) - a;
  if (below == above) return sign | (low % 2 == 0 ? low : low + 1);
  return sign | (below < above ? low : low + 1);
}

double e8m0(unsigned byte) {
  return byte == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(byte) - 127);
}

namespace {

struct Range {
  std::size_t begin, end;
};

std::vector<Range> groups_of(const QuantiseRule& rule) {
  std::vector<Range> ranges;
  for (std::int64_t row = 0; row < rule.rows; ++row)
    for (std::int64_t k = 0; k < rule.k; k += rule.group)
      ranges.push_back({static_cast<std::size_t>(row * rule.k + k),
                        static_cast<std::size_t>(row * rule.k + std::min(k + rule.group, rule.k))});
  return ranges;
}

float amax_of(const std::vector<float>& w, Range range) {
  float amax = 0;
  for (std::size_t i = range.begin; i < range.end; ++i) amax = std::max(amax, std::fabs(w[i]));
  return amax;
}

}  // namespace

Quantised quantise_nvfp4(const std::vector<float>& w, const QuantiseRule& rule) {
  Quantised result;
  result.codes.resize(w.size());
  const float amax = amax_of(w, {0, w.size()});
  if (amax > 0) result.global = std::max(amax / 2688.0f, std::ldexp(1.0f, -126));
  for (const Range range : groups_of(rule)) {
    double best_error = std::numeric_limits<double>::infinity();
    int best_scale = 0;
    std::vector<int> best(range.end - range.begin);
    for (const float target : {6.0f, 4.0f}) {
      if (target == 4.0f && !rule.four_over_six) continue;
      const std::uint32_t byte = nearest(kE4m3, amax_of(w, range) / target / result.global);
      const float scale = static_cast<float>(value_of(kE4m3, byte)), step = scale * result.global;
      std::vector<int> codes(range.end - range.begin);
      double error = 0;
      for (std::size_t i = range.begin; i < range.end; ++i) {
        const float ratio = w[i] / step;
        const std::uint32_t code = step == 0 ? 0 : nearest(kE2m1, ratio);
        codes[i - range.begin] = static_cast<int>(code);
        const float back = static_cast<float>(value_of(kE2m1, code)) * scale * result.global;
        error += (static_cast<double>(w[i]) - back) * (static_cast<double>(w[i]) - back);
      }
      if (error < best_error) {
        best_error = error;
        best_scale = static_cast<int>(byte);
        best = codes;
      }
    }
    std::copy(best.begin(), best.end(), result.codes.begin() + static_cast<std::ptrdiff_t>(range.begin));
    result.scales.push_back(best_scale);
  }
  return result;
}

Quantised quantise_mxfp4(const std::vector<float>& w, const QuantiseRule& rule) {
  Quantised result;
  result.codes.resize(w.size());
  for (const Range range : groups_of(rule)) {
    const double amax = amax_of(w, range);
    int exponent = 0;
    if (amax > 0) {
      while (std::ldexp(1.0, exponent + 1) <= amax) ++exponent;  // 2^exponent <= amax < 2^(exponent + 1)
      while (std::ldexp(1.0, exponent) > amax) --exponent;
      exponent = std::clamp(exponent - 2, -127, 127);
    }
    for (std::size_t i = range.begin; i < range.end; ++i)
      result.codes[i] =
          amax > 0 ? static_cast<int>(nearest(kE2m1, std::ldexp(static_cast<double>(w[i]), -exponent))) : 0;
    result.scales.push_back(exponent + 127);
  }
  return result;
}

Quantised quantise_int4(const std::vector<float>& w, const QuantiseRule& rule) {
  Quantised result;
  result.codes.resize(w.size());
  for (const Range range : groups_of(rule)) {
    float low = 0, high = 0;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      low = std::min(low, w[i]);
      high = std::max(high, w[i]);
    }
    const float ideal = rule.zero_points ? (high - low) / 15.0f : std::max(-low, high) / 7.0f;
    std::uint32_t bits = nearest(kBf16, ideal);
    const bool vanishes = value_of(kBf16, bits) == 0;
    if (vanishes) bits = nearest(kBf16, 1.0);
    const float scale = static_cast<float>(value_of(kBf16, bits));
    double zero = rule.zero_points ? 0 : 8;
    if (rule.zero_points && !vanishes) zero = std::clamp(round_half_even(-low / scale), 0.0, 15.0);
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const float ratio = w[i] / scale;
      const double code = vanishes ? zero : std::clamp(round_half_even(ratio) + zero, 0.0, 15.0);
      result.codes[i] = static_cast<int>(code);
    }
    result.scales.push_back(static_cast<int>(bits));
    result.zeros.push_back(static_cast<int>(zero));
  }
  return result;
}

}  // namespace oracle
