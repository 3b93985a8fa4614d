// Which scales and zero points of a matrix are refused when weights are prepared.
#pragma once

#include <cstdint>
#include <string_view>

#include "fourfold/weights.h"

namespace fourfold {

/// Throws bad_input, with `what` (expert and matrix in words) in front, when
///   - the global scale is not finite or not positive (an expert without a scale, or one that was inverted from zero);
///   - a zero point exceeds 15 (row and group are named), or zero points are missing though the format has them.
/// Everything else is honoured: a NaN scale (E4M3 0x7f and 0xff, E8M0 255, any NaN of bf16, f16, f32) makes the rows it
/// touches NaN for every token that uses them; negative, zero and infinite int4 scales and negative E4M3 scales act as
/// the numbers they are. Throws unsupported for a scale dtype that the format does not have. Thread-safe.
void check_scales(const MatrixSource& source, std::int64_t rows, std::int64_t k, const FormatSpec& spec,
                  std::string_view what);

}  // namespace fourfold
