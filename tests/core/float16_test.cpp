// bf16 and fp16 against their formulas: every pattern, every midpoint and its neighbours, a random sweep.
#include "core/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "oracle/format_oracle.h"

namespace fourfold {
namespace {

struct Narrow {
  const char* name;
  oracle::SmallFloat format;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  std::uint32_t infinity;
};

float widen_bf16(std::uint16_t bits) { return bf16_to_float(bits); }
std::uint16_t narrow_bf16(float value) { return float_to_bf16(value); }
float widen_f16(std::uint16_t bits) { return f16_to_float(bits); }
std::uint16_t narrow_f16(float value) { return float_to_f16(value); }

class Float16 : public testing::TestWithParam<Narrow> {};
INSTANTIATE_TEST_SUITE_P(Types, Float16,
                         testing::Values(Narrow{"bf16", oracle::kBf16, widen_bf16, narrow_bf16, 0x7f80},
                                         Narrow{"f16", oracle::kF16, widen_f16, narrow_f16, 0x7c00}),
                         [](const auto& type) { return std::string(type.param.name); });

TEST_P(Float16, EveryPatternWidensToItsFormula) {
  int compared = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits, ++compared) {
    const float got = GetParam().widen(static_cast<std::uint16_t>(bits));
    const double want = oracle::value_of(GetParam().format, bits);
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(got)) << bits;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(static_cast<float>(want))) << bits;
  }
  EXPECT_EQ(compared, 0x10000);
}

TEST_P(Float16, EveryNumberSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint16_t back = GetParam().narrow(GetParam().widen(static_cast<std::uint16_t>(bits)));
    if ((bits & 0x7fffu) > GetParam().infinity) {
      ASSERT_GT(back & 0x7fffu, GetParam().infinity) << "NaN " << bits << " became a number";
      ASSERT_EQ(back & 0x8000u, bits & 0x8000u);
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST_P(Float16, MidpointsGoToEvenAndTheirNeighboursToTheNearest) {
  int compared = 0;
  for (std::uint32_t low = 0; low < GetParam().infinity; ++low) {
    const double a = oracle::value_of(GetParam().format, low);
    const double next = low + 1 == GetParam().infinity
                            ? 2 * a - oracle::value_of(GetParam().format, low - 1)  // where overflow starts, minus half
                            : oracle::value_of(GetParam().format, low + 1);
    const float middle = static_cast<float>((a + next) / 2);  // one more bit than the type: exact in fp32
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint32_t s = sign < 0 ? 0x8000u : 0;
      ASSERT_EQ(GetParam().narrow(sign * middle), s | (low % 2 == 0 ? low : low + 1));
      ASSERT_EQ(GetParam().narrow(sign * std::nextafter(middle, 0.0f)), s | low);
      ASSERT_EQ(GetParam().narrow(sign * std::nextafter(middle, std::numeric_limits<float>::infinity())),
                s | (low + 1));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * static_cast<int>(GetParam().infinity));
}

TEST_P(Float16, RandomPatternsRoundAsTheOracle) {
  std::mt19937 random(7);
  int compared = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(GetParam().narrow(value), oracle::nearest(GetParam().format, value)) << value;
    ++compared;
  }
  EXPECT_GT(compared, 900'000);
}

TEST_P(Float16, NanAndInfinityStayThat) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(GetParam().narrow(infinity), GetParam().infinity);
  EXPECT_EQ(GetParam().narrow(-infinity), 0x8000u | GetParam().infinity);
  // A NaN whose payload lies only in the bits that are cut off must not become an infinity.
  EXPECT_GT(GetParam().narrow(std::bit_cast<float>(0x7f800001u)) & 0x7fffu, GetParam().infinity);
  EXPECT_EQ(GetParam().narrow(-0.0f), 0x8000u);
}

}  // namespace
}  // namespace fourfold
