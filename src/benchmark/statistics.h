// Medians, and how sure they are. Distribution-free: times of a GPU have a long upper tail.
#pragma once

#include <vector>

namespace fourfold::benchmark {

/// Linear interpolation between the two nearest ranks. NaN for no values.
double quantile(std::vector<double> values, double share);

/// Bounds of the median's confidence interval: two of the values.
struct MedianInterval {
  double low = 0, high = 0;
};
/// The narrowest symmetric pair of order statistics between which the true median lies with at least 95 % confidence,
/// whatever the distribution (the sign test: ranks by the binomial distribution with p = 1/2); all of the values when
/// there are fewer than six. NaN for no values.
MedianInterval median_interval(std::vector<double> values);

}  // namespace fourfold::benchmark
