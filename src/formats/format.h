// Which 4-bit formats exist and which of their parameters are allowed.
#pragma once

#include <string>

#include "fourfold/weights.h"

namespace fourfold {

/// Empty when `spec` is a format we have; otherwise the reason, with what would be accepted. Pure.
std::string format_refusal(const FormatSpec& spec);

/// Throws unsupported with format_refusal's reason. Pure otherwise.
void check_format(const FormatSpec& spec);

/// Positions of a row's group: group_size, or `k` for groups of a whole row. Pure.
std::int64_t group_length(const FormatSpec& spec, std::int64_t k) noexcept;

}  // namespace fourfold
