// The quantisers against an independent oracle, code by code and scale by scale, and the groups that break others.
#include "formats/quantize.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/dequantize.h"
#include "fourfold/error.h"
#include "oracle/format_oracle.h"

namespace fourfold {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();

std::vector<float> dequantized(const QuantizedMatrix& matrix) {
  std::vector<float> out(static_cast<std::size_t>(matrix.rows * matrix.k));
  dequantize(matrix.source(), matrix.rows, matrix.k, matrix.spec, out.data());
  return out;
}

int code_at(const QuantizedMatrix& matrix, std::int64_t i) {
  return matrix.codes[static_cast<std::size_t>(i / 2)] >> (i % 2 * 4) & 15;
}

int scale_at(const QuantizedMatrix& matrix, std::size_t i) {
  if (matrix.scale_dtype != DType::bf16) return matrix.scales[i];
  std::uint16_t bits;
  std::memcpy(&bits, matrix.scales.data() + 2 * i, 2);
  return bits;
}

enum class Values { gaussian, wide, ties, sparse };

// `wide` spans 24 binary orders of magnitude, so that E4M3 scales reach their subnormals and zero; `ties` are small
// multiples of 1/4, which lie on midpoints; `sparse` has groups of zeros, negative zeros and single values.
std::vector<float> values(Values kind, std::int64_t rows, std::int64_t k, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<std::size_t>(rows * k));
  for (std::size_t i = 0; i < w.size(); ++i) {
    const float x = normal(random);
    if (kind == Values::gaussian) w[i] = 0.02f * x;
    if (kind == Values::wide) w[i] = std::ldexp(x, -static_cast<int>((i / 8) % 24));
    if (kind == Values::ties) w[i] = 0.25f * static_cast<float>(static_cast<int>(random() % 49) - 24);
    if (kind == Values::sparse) w[i] = (i / 32) % 3 == 0 || random() % 8 != 0 ? (x < 0 ? -0.0f : 0.0f) : x;
  }
  return w;
}

struct Case {
  FormatSpec spec;
  std::int64_t rows, k;
  bool four_over_six = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << weight_format_name(c.spec.format) << " g" << c.spec.group_size << (c.spec.zero_points ? " zeros " : " ")
       << c.rows << "x" << c.k << (c.four_over_six ? " four-over-six" : "");
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::int64_t k : {8, 16, 24, 96, 136, 264, 520}) {
    cases.push_back({FormatSpec::nvfp4(), 7, k});
    cases.push_back({FormatSpec::nvfp4(), 7, k, true});
    cases.push_back({FormatSpec::mxfp4(), 7, k});
    for (const std::int64_t group : {0, 16, 32, 64, 96, 128, 256})
      for (const bool zeros : {false, true}) cases.push_back({FormatSpec::int4(group, zeros), 5, k});
  }
  return cases;
}

class AgainstOracle : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Shapes, AgainstOracle, testing::ValuesIn(all_cases()));

TEST_P(AgainstOracle, CodesScalesAndZerosAreBitEqual) {
  const Case& c = GetParam();
  oracle::QuantiseRule rule{c.rows, c.k, c.spec.group_size > 0 ? c.spec.group_size : c.k};
  rule.four_over_six = c.four_over_six;
  rule.zero_points = c.spec.zero_points;
  int compared = 0;
  for (const Values kind : {Values::gaussian, Values::wide, Values::ties, Values::sparse}) {
    const std::vector<float> w = values(kind, c.rows, c.k, 3);
    const QuantizedMatrix got = quantize_matrix(w, c.rows, c.k, c.spec, c.four_over_six);
    const oracle::Quantised want = c.spec.format == WeightFormat::nvfp4   ? oracle::quantise_nvfp4(w, rule)
                                   : c.spec.format == WeightFormat::mxfp4 ? oracle::quantise_mxfp4(w, rule)
                                                                          : oracle::quantise_int4(w, rule);
    ASSERT_EQ(got.global_scale, want.global);
    ASSERT_EQ(want.scales.size(), static_cast<std::size_t>(c.rows * groups_per_row(c.spec, c.k)));
    ASSERT_EQ(got.scales.size(), want.scales.size() * (got.scale_dtype == DType::bf16 ? 2 : 1));
    for (std::size_t i = 0; i < want.scales.size(); ++i) ASSERT_EQ(scale_at(got, i), want.scales[i]) << "scale " << i;
    for (std::int64_t i = 0; i < c.rows * c.k; ++i, ++compared)
      ASSERT_EQ(code_at(got, i), want.codes[static_cast<std::size_t>(i)])
          << "code " << i << " of " << w[static_cast<std::size_t>(i)];
    ASSERT_EQ(got.zeros.size(), c.spec.zero_points ? want.zeros.size() : 0);
    for (std::size_t i = 0; i < got.zeros.size(); ++i) ASSERT_EQ(got.zeros[i], want.zeros[i]) << "zero " << i;
  }
  EXPECT_EQ(compared, 4 * c.rows * c.k);
}

// Every format, with groups of 16 or 32, for the facts that hold for all of them.
class EveryFormat : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         testing::Values(Case{FormatSpec::nvfp4(), 2, 64}, Case{FormatSpec::nvfp4(), 2, 64, true},
                                         Case{FormatSpec::mxfp4(), 2, 64}, Case{FormatSpec::int4(32), 2, 64},
                                         Case{FormatSpec::int4(32, true), 2, 64},
                                         Case{FormatSpec::int4(0, true), 2, 64}));

QuantizedMatrix quantize(const std::vector<float>& w, const Case& c) {
  return quantize_matrix(w, c.rows, c.k, c.spec, c.four_over_six);
}

// Decoded values are finite and no further from the weight than the largest of its group (bug-log BL-27).
void expect_error_within_group_maximum(const std::vector<float>& w, const Case& c) {
  const QuantizedMatrix matrix = quantize(w, c);
  EXPECT_TRUE(std::isfinite(matrix.global_scale) && matrix.global_scale > 0);
  const std::vector<float> back = dequantized(matrix);
  const std::int64_t group = c.spec.group_size > 0 ? c.spec.group_size : c.k;
  int compared = 0;
  for (std::int64_t i = 0; i < c.rows * c.k; ++i, ++compared) {
    const std::int64_t row_begin = i / c.k * c.k, begin = row_begin + (i - row_begin) / group * group;
    float amax = 0;
    for (std::int64_t j = begin; j < std::min(begin + group, row_begin + c.k); ++j)
      amax = std::max(amax, std::fabs(w[static_cast<std::size_t>(j)]));
    const float value = back[static_cast<std::size_t>(i)], weight = w[static_cast<std::size_t>(i)];
    ASSERT_TRUE(std::isfinite(value)) << i << ": " << weight;
    ASSERT_LE(std::fabs(static_cast<double>(value) - weight), amax) << i << ": " << weight << " became " << value;
  }
  EXPECT_EQ(compared, c.rows * c.k);
}

TEST_P(EveryFormat, ZerosComeBackAsExactZerosWithFiniteScales) {
  for (const float zero : {0.0f, -0.0f}) {
    const std::vector<float> w(128, zero);
    const QuantizedMatrix matrix = quantize(w, GetParam());
    EXPECT_EQ(matrix.global_scale, 1.0f);
    const int zero_code = GetParam().spec.format == WeightFormat::int4 && !GetParam().spec.zero_points ? 8 : 0;
    for (std::int64_t i = 0; i < 128; ++i) ASSERT_EQ(code_at(matrix, i), zero_code);
    const std::int64_t groups = groups_per_row(matrix.spec, matrix.k);
    for (std::int64_t i = 0; i < 2 * groups; ++i)
      ASSERT_TRUE(std::isfinite(scale_value(matrix.spec, matrix.scale_dtype, matrix.scales.data(), i)));
    for (const float value : dequantized(matrix)) ASSERT_EQ(std::bit_cast<std::uint32_t>(value), 0u);
  }
}

TEST_P(EveryFormat, AGroupOfZerosAmongOthersComesBackAsZeros) {
  std::vector<float> w(128, 0.5f);
  std::fill_n(w.begin(), 64, 0.0f);  // the whole first row
  const std::vector<float> back = dequantized(quantize(w, GetParam()));
  for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(back[i], 0.0f);
  for (std::size_t i = 64; i < 128; ++i) ASSERT_NE(back[i], 0.0f);
}

TEST_P(EveryFormat, TinyAndHugeGroupsStayFiniteAndWithinTheGroupMaximum) {
  const float smallest = std::numeric_limits<float>::denorm_min(), normal = std::numeric_limits<float>::min();
  for (const float size : {1e-30f, 1e-6f, 1e-38f, normal, 1e-40f, 1e-44f, smallest, 65504.0f, 1e30f, 3e38f, kMax}) {
    SCOPED_TRACE(size);
    expect_error_within_group_maximum(std::vector<float>(128, size), GetParam());
    expect_error_within_group_maximum(std::vector<float>(128, -size), GetParam());
    std::vector<float> one(128, 0.0f);
    one[37] = size;
    expect_error_within_group_maximum(one, GetParam());
    one[38] = -size;
    expect_error_within_group_maximum(one, GetParam());
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> mixed(128);
    for (float& w : mixed) w = size * uniform(random);
    expect_error_within_group_maximum(mixed, GetParam());
    std::fill_n(mixed.begin(), 64, 1.0f);  // the other row is of ordinary size: its groups meet a foreign global scale
    if (size < kMax) expect_error_within_group_maximum(mixed, GetParam());
  }
}

TEST_P(EveryFormat, NotFiniteWeightsAreRefusedWithTheirPosition) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> w(128, 1.0f);
    w[64 + 13] = bad;
    w[64 + 50] = bad;
    try {
      quantize(w, GetParam());
      ADD_FAILURE() << "nothing was thrown for " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("row 1, column 13"), std::string::npos) << error.what();
    }
  }
}

TEST_P(EveryFormat, ResultDoesNotDependOnTheThreads) {
  const std::vector<float> w = values(Values::gaussian, 37, 264, 9);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const QuantizedMatrix one = quantize_matrix(w, 37, 264, GetParam().spec, GetParam().four_over_six);
  omp_set_num_threads(5);
  const QuantizedMatrix five = quantize_matrix(w, 37, 264, GetParam().spec, GetParam().four_over_six);
  omp_set_num_threads(threads);
  EXPECT_EQ(one.codes, five.codes);
  EXPECT_EQ(one.scales, five.scales);
  EXPECT_EQ(one.zeros, five.zeros);
  EXPECT_EQ(one.global_scale, five.global_scale);
}

TEST_P(EveryFormat, WrongSizesAreRefused) {
  const std::vector<float> w(128);
  const Case& c = GetParam();
  const auto code_of = [&](std::int64_t rows, std::int64_t k) {
    try {
      quantize_matrix(w, rows, k, c.spec, c.four_over_six);
    } catch (const Error& error) {
      return error.exit_code();
    }
    return 0;
  };
  EXPECT_EQ(code_of(2, 64), 0);
  EXPECT_EQ(code_of(3, 64), 2);
  EXPECT_EQ(code_of(2, 63), 3);
  EXPECT_EQ(code_of(0, 64), 3);
  EXPECT_EQ(code_of(2, -64), 3);
  EXPECT_EQ(code_of(std::int64_t{1} << 40, std::int64_t{1} << 40), 3);
}

TEST(Quantize, NegativeValuesThatRoundToZeroKeepTheirSign) {
  std::vector<float> w(32, 6.0f);
  w[0] = -0.01f;
  w[1] = -0.0f;
  w[2] = 0.01f;
  for (const FormatSpec& spec : {FormatSpec::nvfp4(), FormatSpec::mxfp4()}) {
    const QuantizedMatrix matrix = quantize_matrix(w, 1, 32, spec);
    EXPECT_EQ(code_at(matrix, 0), 8);
    EXPECT_EQ(code_at(matrix, 1), 8);
    EXPECT_EQ(code_at(matrix, 2), 0);
  }
}

// Values that a format can hold come back as they are: quantising is idempotent where the rule allows it.
TEST(Quantize, RepresentableMxfp4AndInt4ValuesAreKept) {
  std::vector<float> w(32);
  for (unsigned i = 0; i < 32; ++i) w[i] = static_cast<float>(oracle::value_of(oracle::kE2m1, i % 16)) * 0x1p-20f;
  EXPECT_EQ(dequantized(quantize_matrix(w, 1, 32, FormatSpec::mxfp4())), w);
  for (int i = 0; i < 32; ++i) w[static_cast<std::size_t>(i)] = 0.125f * static_cast<float>(i % 15 - 7);
  EXPECT_EQ(dequantized(quantize_matrix(w, 1, 32, FormatSpec::int4(32))), w);
  for (int i = 0; i < 32; ++i) w[static_cast<std::size_t>(i)] = 0.125f * static_cast<float>(i % 16 - 3);
  EXPECT_EQ(dequantized(quantize_matrix(w, 1, 32, FormatSpec::int4(32, true))), w);
}

TEST(Quantize, FourOverSixNeverHasALargerSquaredErrorInAnyBlock) {
  const std::vector<float> w = values(Values::gaussian, 64, 128, 21);
  const std::vector<float> six = dequantized(quantize_matrix(w, 64, 128, FormatSpec::nvfp4()));
  const std::vector<float> choice = dequantized(quantize_matrix(w, 64, 128, FormatSpec::nvfp4(), true));
  int better = 0, compared = 0;
  for (std::size_t block = 0; block < w.size(); block += 16, ++compared) {
    double a = 0, b = 0;
    for (std::size_t i = block; i < block + 16; ++i) {
      a += std::pow(static_cast<double>(w[i]) - six[i], 2);
      b += std::pow(static_cast<double>(w[i]) - choice[i], 2);
    }
    ASSERT_LE(b, a);
    better += b < a;
  }
  EXPECT_EQ(compared, 512);
  EXPECT_GT(better, 0);
  EXPECT_LT(better, 512);
}

TEST(Quantize, FourOverSixIsRefusedForOtherFormats) {
  const std::vector<float> w(64);
  for (const FormatSpec& spec : {FormatSpec::mxfp4(), FormatSpec::int4(32)}) try {
      quantize_matrix(w, 2, 32, spec, true);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
    }
}

}  // namespace
}  // namespace fourfold
