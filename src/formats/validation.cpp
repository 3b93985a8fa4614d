// The one rule on scales: globals are refused when they cannot be meant; block scales are honoured as they are.
#include "formats/validation.h"

#include <cmath>

#include "core/check.h"
#include "formats/dequantize.h"
#include "formats/format.h"

namespace fourfold {

void check_scales(const MatrixSource& source, std::int64_t rows, std::int64_t k, const FormatSpec& spec,
                  std::string_view what) {
  check(std::isfinite(source.global_scale) && source.global_scale > 0.0f, ErrorCode::bad_input,
        "{}: the global scale is {}; it must be finite and greater than 0", what, source.global_scale);
  const std::int64_t groups = groups_per_row(spec, k);
  if (rows <= 0 || groups == 0) return;
  check(source.scales != nullptr, ErrorCode::bad_input, "{}: the scales are missing", what);
  scale_value(spec, source.scale_dtype, source.scales, 0);  // refuses a dtype that the format does not have
  if (!spec.zero_points) return;
  check(source.zeros != nullptr, ErrorCode::bad_input, "{}: the format has zero points, but they are missing", what);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint8_t* zeros = source.zeros + row * source.zeros_row_bytes;
    for (std::int64_t group = 0; group < groups; ++group)
      check(zeros[group] <= 15, ErrorCode::bad_input, "{}: the zero point of row {}, group {} is {}; allowed: 0 .. 15",
            what, row, group, zeros[group]);
  }
}

}  // namespace fourfold
