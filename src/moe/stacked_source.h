// Checks on the tensors of a layer's experts as they are handed over.
#pragma once

#include <string_view>

#include "fourfold/plan.h"
#include "fourfold/weights.h"

namespace fourfold {

/// Checks what an ExpertSource returned for one expert against `caps`: no null pointer, every row stride at least a
/// row, dtypes that the format knows, biases exactly where the caps say, and the values that are refused (see
/// formats/validation.h). Throws bad_input naming expert, matrix, value and expectation.
void check_expert(const ExpertMatrices& expert, std::int64_t index, const Caps& caps);

}  // namespace fourfold
