// Checks throw the code and text they were given; sizes that overflow are refused by name.
#include "core/check.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Check, FailCarriesCodeAndText) {
  try {
    fail(ErrorCode::bad_input, "{} is {}", "x", 3);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_STREQ(error.what(), "x is 3");
  }
}

TEST(Check, TrueIsSilent) { EXPECT_NO_THROW(check(true, ErrorCode::internal, "never")); }

TEST(Check, MultipliesUpToTheLargestSize) {
  EXPECT_EQ(checked_mul(kMax, 1, "n"), kMax);
  EXPECT_EQ(checked_mul(0, kMax, "n"), 0);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 31, std::int64_t{1} << 31, "n"), std::int64_t{1} << 62);
}

TEST(Check, RefusesProductsAndSumsThatOverflow) {
  EXPECT_THROW(checked_mul(std::int64_t{1} << 32, std::int64_t{1} << 31, "n"), Error);
  EXPECT_THROW(checked_mul(-1, 5, "n"), Error);
  EXPECT_THROW(checked_mul(-1, -1, "n"), Error);
  EXPECT_THROW(checked_add(kMax, 1, "n"), Error);
  EXPECT_THROW(checked_add(-1, 1, "n"), Error);
  EXPECT_EQ(checked_add(kMax - 1, 1, "n"), kMax);
}

TEST(Check, OverflowNamesTheSize) {
  try {
    checked_mul(kMax, 2, "rows of x");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rows of x"), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

TEST(Check, CeilDivAndRoundUp) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(9, 8), 2);
  EXPECT_EQ(ceil_div(kMax, 2), kMax / 2 + 1);
  EXPECT_EQ(round_up(9, 8), 16);
}

}  // namespace
}  // namespace fourfold
