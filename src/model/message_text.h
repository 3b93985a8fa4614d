// Names, lists and values from files, fit for an error message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

/// Control characters masked, cut after 160 bytes.
std::string shown_name(std::string_view name);
/// "a, b and 12 more": at most 20 names.
std::string listed(const std::vector<std::string>& names);
/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace fourfold
