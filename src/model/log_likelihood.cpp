// -log softmax(logits)[target] in double precision.
#include "model/log_likelihood.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/check.h"

namespace fourfold {

double negative_log_likelihood(std::span<const float> row, std::int32_t target) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float logit : row) largest = std::fmax(largest, logit);
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - largest);  // NaN stays NaN
  return std::log(sum) + largest - static_cast<double>(row[static_cast<std::size_t>(target)]);
}

double sum_negative_log_likelihood(std::span<const float> rows, std::span<const std::int32_t> targets,
                                   std::int64_t width) {
  const auto count = static_cast<std::int64_t>(targets.size());
  for (const std::int32_t target : targets)
    check(target >= 0 && target < width, ErrorCode::usage, "target id {} is outside the vocabulary 0 .. {}", target,
          width - 1);
  check(static_cast<std::int64_t>(rows.size()) == count * width, ErrorCode::internal,
        "{} logits for {} targets of {} entries", rows.size(), count, width);
  std::vector<double> each(targets.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i)
    each[static_cast<std::size_t>(i)] =
        negative_log_likelihood(rows.subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width)),
                                targets[static_cast<std::size_t>(i)]);
  double total = 0;
  for (const double value : each) total += value;
  return total;
}

}  // namespace fourfold
