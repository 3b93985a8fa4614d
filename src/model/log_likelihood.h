// -log softmax(logits)[target] in double precision.
#pragma once

#include <cstdint>
#include <span>

namespace fourfold {

/// For one row of fp32 logits. NaN for a row with NaN. `target` is in range. Pure.
double negative_log_likelihood(std::span<const float> row, std::int32_t target);
/// Sum over rows [targets, width]; rows in parallel, the sum in their order. Throws usage for a target outside the row.
double sum_negative_log_likelihood(std::span<const float> rows, std::span<const std::int32_t> targets,
                                   std::int64_t width);

}  // namespace fourfold
