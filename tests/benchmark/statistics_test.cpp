// Medians and their intervals against what can be counted by hand, and against drawn samples.
#include "benchmark/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace fourfold::benchmark {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Statistics, QuantilesInterpolate) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(quantile({10, 20}, 0.1), 11);
  EXPECT_EQ(quantile({7}, 0.9), 7);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

// Ranks of the sign test's tables: 2 P(Binomial(n, 1/2) <= r - 1) <= 0.05 for the largest r.
TEST(Statistics, IntervalsHaveTheRanksOfTheSignTest) {
  struct Row {
    int n, low, high;
  };
  for (const Row row : {Row{6, 1, 6}, Row{10, 2, 9}, Row{15, 4, 12}, Row{20, 6, 15}, Row{31, 10, 22}}) {
    const MedianInterval interval = median_interval(one_to(row.n));
    EXPECT_EQ(interval.low, row.low) << row.n;
    EXPECT_EQ(interval.high, row.high) << row.n;
  }
  for (int n = 1; n < 6; ++n) {
    EXPECT_EQ(median_interval(one_to(n)).low, 1);
    EXPECT_EQ(median_interval(one_to(n)).high, n);
  }
  EXPECT_TRUE(std::isnan(median_interval({}).low));
}

TEST(Statistics, IntervalsHoldTheMedianAsOftenAsTheySay) {
  std::mt19937_64 random(5);
  constexpr int kRounds = 4000;
  int held = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> values;  // exponential: a long tail on one side, median ln 2
    for (int i = 0; i < 31; ++i) values.push_back(-std::log((static_cast<double>(random() >> 11) + 1) * 0x1p-53));
    const MedianInterval interval = median_interval(values);
    held += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  // At least 95 % by construction, so 3800; three standard deviations of a binomial below that are 41.
  EXPECT_GE(held, 3759);
  EXPECT_LT(held, kRounds) << "an interval that always holds says nothing";
}

}  // namespace
}  // namespace fourfold::benchmark
