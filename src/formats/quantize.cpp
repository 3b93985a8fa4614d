// Round-to-nearest quantisers of the three formats, one group at a time (rules in quantize.h).
// The choice between block maxima 4 and 6 is "Four Over Six" (adaptive block scaling for NVFP4).
#include "formats/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/float16.h"
#include "formats/format.h"
#include "formats/fp4.h"

namespace fourfold {
namespace {

constexpr std::int64_t kNvfp4Block = 16;
constexpr std::uint32_t kMagnitudeBits = 0x7fffffffu;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

// Largest magnitude as fp32 bits: magnitudes order like their bits, and infinities and NaN lie above every number.
std::uint32_t largest_magnitude_bits(const float* w, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(w[i]) & kMagnitudeBits);
  return largest;
}

float largest_magnitude(const float* w, std::int64_t count) {
  return std::bit_cast<float>(largest_magnitude_bits(w, count));
}

[[noreturn]] void fail_at_first_not_finite(std::span<const float> w, std::int64_t k) {
  std::size_t at = 0;
  while (std::isfinite(w[at])) ++at;
  fail(ErrorCode::bad_input, "the weight at row {}, column {} is {}; only finite weights can be quantised",
       static_cast<std::int64_t>(at) / k, static_cast<std::int64_t>(at) % k, w[at]);
}

// ---- nvfp4 -----------------------------------------------------------------------------------------------------

// g such that the largest weight is 6 * 448 * g. Not below the smallest normal, so that neither g nor 1 / g is lost
// where subnormals are flushed or the reciprocal is stored; not so large that 6 * 448 * g overflows by rounding.
float nvfp4_global_scale(float amax) {
  if (amax == 0.0f) return 1.0f;
  float global = std::max(amax / (kE2m1Max * kE4m3Max), std::numeric_limits<float>::min());
  while (!std::isfinite(kE2m1Max * kE4m3Max * global)) global = std::nextafter(global, 0.0f);
  return global;
}

struct Nvfp4Block {
  std::uint8_t scale = 0;
  std::array<std::uint8_t, kNvfp4Block> codes{};
  double squared_error = 0;
};

// `code_of_max` is the code value that the block's largest weight shall get: 6, or 4.
Nvfp4Block encode_nvfp4_block(const float* w, std::int64_t count, float amax, float global, float code_of_max) {
  Nvfp4Block block;
  block.scale = e4m3_from_float(amax / code_of_max / global);
  const float scale = e4m3_value(block.scale);
  const float step = scale * global;
  for (std::int64_t i = 0; i < count; ++i) {
    block.codes[i] = step > 0.0f ? e2m1_from_float(w[i] / step) : std::uint8_t{0};
    const double error = static_cast<double>(w[i]) - e2m1_value(block.codes[i]) * scale * global;
    block.squared_error += error * error;
  }
  return block;
}

std::uint8_t quantize_nvfp4_group(const float* w, std::int64_t count, float global, bool four_over_six,
                                  std::uint8_t* codes) {
  const float amax = largest_magnitude(w, count);
  Nvfp4Block block = encode_nvfp4_block(w, count, amax, global, kE2m1Max);
  if (four_over_six) {
    const Nvfp4Block four = encode_nvfp4_block(w, count, amax, global, 4.0f);
    if (four.squared_error < block.squared_error) block = four;
  }
  std::copy_n(block.codes.begin(), count, codes);
  return block.scale;
}

// ---- mxfp4 -----------------------------------------------------------------------------------------------------

std::uint8_t quantize_mxfp4_group(const float* w, std::int64_t count, std::uint8_t* codes) {
  constexpr int kE8m0Bias = 127, kE2m1MaxExponent = 2;  // 6 = 1.5 * 2^2
  const float amax = largest_magnitude(w, count);
  if (amax == 0.0f) {
    std::fill_n(codes, count, std::uint8_t{0});
    return kE8m0Bias;
  }
  const int exponent = std::max(std::ilogb(amax) - kE2m1MaxExponent, -kE8m0Bias);
  const float inverse = std::ldexp(1.0f, -exponent);  // -exponent is within [-125, 127]: a normal number
  for (std::int64_t i = 0; i < count; ++i) codes[i] = e2m1_from_float(w[i] * inverse);
  return static_cast<std::uint8_t>(exponent + kE8m0Bias);
}

// ---- int4 ------------------------------------------------------------------------------------------------------

constexpr std::uint16_t kBf16One = 0x3f80;

struct Int4Group {
  std::uint16_t scale = kBf16One;  // bf16 bits
  std::uint8_t zero = 8;
};

int round_within(float value, int low, int high) {
  return static_cast<int>(std::clamp(std::nearbyint(value), static_cast<float>(low), static_cast<float>(high)));
}

Int4Group quantize_int4_symmetric(const float* w, std::int64_t count, std::uint8_t* codes) {
  Int4Group group;
  group.scale = float_to_bf16(largest_magnitude(w, count) / 7.0f);
  while (!std::isfinite(7.0f * bf16_to_float(group.scale))) --group.scale;  // next bf16 towards zero
  const float scale = bf16_to_float(group.scale);
  if (scale == 0.0f) {
    group.scale = kBf16One;
    std::fill_n(codes, count, group.zero);
    return group;
  }
  for (std::int64_t i = 0; i < count; ++i) codes[i] = static_cast<std::uint8_t>(round_within(w[i] / scale, -8, 7) + 8);
  return group;
}

Int4Group quantize_int4_with_zero(const float* w, std::int64_t count, std::uint8_t* codes) {
  float low = 0.0f, high = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
  }
  const float range = high - low;
  Int4Group group;
  group.scale = float_to_bf16(std::isfinite(range) ? range / 15.0f : high / 15.0f - low / 15.0f);
  if (bf16_to_float(group.scale) == 0.0f) {
    group = {kBf16One, 0};
    std::fill_n(codes, count, group.zero);
    return group;
  }
  for (;; --group.scale) {  // steps towards zero only where the ends of the code range would overflow fp32
    const float scale = bf16_to_float(group.scale);
    group.zero = static_cast<std::uint8_t>(round_within(-low / scale, 0, 15));
    if (std::isfinite(static_cast<float>(std::max<int>(group.zero, 15 - group.zero)) * scale)) break;
  }
  const float scale = bf16_to_float(group.scale);
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<std::uint8_t>(std::clamp(round_within(w[i] / scale, -15, 15) + group.zero, 0, 15));
  return group;
}

// ---- a row -----------------------------------------------------------------------------------------------------

struct RowOut {
  std::uint8_t* unpacked;  // [k] scratch
  std::uint8_t* codes;     // [k / 2]
  std::uint8_t* scales;    // [groups] of the scale dtype
  std::uint8_t* zeros;     // [groups] or null
};

void quantize_row(const float* w, const QuantizedMatrix& matrix, bool four_over_six, const RowOut& out) {
  const std::int64_t length = group_length(matrix.spec, matrix.k);
  for (std::int64_t begin = 0, index = 0; begin < matrix.k; begin += length, ++index) {
    const std::int64_t count = std::min(length, matrix.k - begin);
    const float* group = w + begin;
    std::uint8_t* codes = out.unpacked + begin;
    if (matrix.spec.format == WeightFormat::nvfp4) {
      out.scales[index] = quantize_nvfp4_group(group, count, matrix.global_scale, four_over_six, codes);
    } else if (matrix.spec.format == WeightFormat::mxfp4) {
      out.scales[index] = quantize_mxfp4_group(group, count, codes);
    } else {
      const Int4Group result = matrix.spec.zero_points ? quantize_int4_with_zero(group, count, codes)
                                                       : quantize_int4_symmetric(group, count, codes);
      std::memcpy(out.scales + 2 * index, &result.scale, 2);
      if (out.zeros != nullptr) out.zeros[index] = result.zero;
    }
  }
  for (std::int64_t i = 0; i < matrix.k / 2; ++i)
    out.codes[i] = static_cast<std::uint8_t>(out.unpacked[2 * i] | out.unpacked[2 * i + 1] << 4);
}

float checked_largest_magnitude(std::span<const float> w, std::int64_t rows, std::int64_t k) {
  std::uint32_t largest = 0;
#pragma omp parallel for schedule(static) reduction(max : largest)
  for (std::int64_t row = 0; row < rows; ++row)
    largest = std::max(largest, largest_magnitude_bits(w.data() + row * k, k));
  if (largest >= kInfinityBits) fail_at_first_not_finite(w, k);
  return std::bit_cast<float>(largest);
}

}  // namespace

MatrixSource QuantizedMatrix::source() const noexcept {
  const std::int64_t groups = groups_per_row(spec, k);
  MatrixSource view;
  view.codes = codes.data();
  view.codes_row_bytes = k / 2;
  view.scales = scales.data();
  view.scale_dtype = scale_dtype;
  view.scales_row_bytes = groups * dtype_bits(scale_dtype) / 8;
  view.zeros = zeros.empty() ? nullptr : zeros.data();
  view.zeros_row_bytes = zeros.empty() ? 0 : groups;
  view.global_scale = global_scale;
  return view;
}

QuantizedMatrix quantize_matrix(std::span<const float> w, std::int64_t rows, std::int64_t k, const FormatSpec& spec,
                                bool four_over_six) {
  check_format(spec);
  check(rows > 0 && k > 0 && k % 2 == 0, ErrorCode::unsupported,
        "a matrix of {} rows x {} positions cannot be quantised: both must be positive and k even", rows, k);
  check(!four_over_six || spec.format == WeightFormat::nvfp4, ErrorCode::usage,
        "four_over_six is a rule of nvfp4, not of {}", weight_format_name(spec.format));
  const std::int64_t count = checked_mul(rows, k, "matrix to quantise");
  check(static_cast<std::int64_t>(w.size()) == count, ErrorCode::usage, "{} weights given for a matrix of {} x {} = {}",
        w.size(), rows, k, count);

  QuantizedMatrix matrix;
  matrix.rows = rows;
  matrix.k = k;
  matrix.spec = spec;
  matrix.scale_dtype = spec.format == WeightFormat::nvfp4   ? DType::f8_e4m3
                       : spec.format == WeightFormat::mxfp4 ? DType::f8_e8m0
                                                            : DType::bf16;
  const float amax = checked_largest_magnitude(w, rows, k);
  if (spec.format == WeightFormat::nvfp4) matrix.global_scale = nvfp4_global_scale(amax);
  const std::int64_t groups = groups_per_row(spec, k);
  const std::int64_t scale_row_bytes = groups * dtype_bits(matrix.scale_dtype) / 8;
  matrix.codes.resize(static_cast<std::size_t>(count / 2));
  matrix.scales.resize(static_cast<std::size_t>(rows * scale_row_bytes));
  if (spec.zero_points) matrix.zeros.resize(static_cast<std::size_t>(rows * groups));

  std::vector<std::uint8_t> unpacked(static_cast<std::size_t>(count));  // here, so that no thread allocates
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const RowOut out{unpacked.data() + row * k, matrix.codes.data() + row * (k / 2),
                     matrix.scales.data() + row * scale_row_bytes,
                     spec.zero_points ? matrix.zeros.data() + row * groups : nullptr};
    quantize_row(w.data() + row * k, matrix, four_over_six, out);
  }
  return matrix;
}

}  // namespace fourfold
