// Medians and their confidence intervals.
#include "benchmark/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fourfold::benchmark {
namespace {

constexpr double kErrorShare = 0.05;  // of intervals that miss the median, both sides together
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return kNaN;
  std::sort(values.begin(), values.end());
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

MedianInterval median_interval(std::vector<double> values) {
  if (values.empty()) return {kNaN, kNaN};
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  // [value r, value n - 1 - r] misses the median when at most r values lie on one side of it: 2 P(Binomial <= r).
  std::size_t rank = 0;
  double outside = 0;
  for (std::size_t r = 0; 2 * r + 1 < values.size(); ++r) {
    const auto k = static_cast<double>(r);
    outside += 2 * std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
    if (outside > kErrorShare) break;
    rank = r;
  }
  return {values[rank], values[values.size() - 1 - rank]};
}

}  // namespace fourfold::benchmark
