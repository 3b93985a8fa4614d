// The rules that a problem keeps on every device, as reasons in words.
#pragma once

#include <string>

#include "fourfold/plan.h"

namespace fourfold {

inline constexpr std::int64_t kMaxTokens = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t kMaxTopK = 64;
inline constexpr std::int64_t kMaxExperts = 4096;
inline constexpr std::int64_t kMaxGlobalExperts = 65536;
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;  // of hidden and intermediate
inline constexpr std::int64_t kWidthMultiple = 8;

/// Empty when the caps keep every rule that does not depend on a device, else the first broken rule: field, value,
/// rule and the nearest value that would be accepted. Never throws for any field content. Pure.
std::string caps_refusal(const Caps& caps);

/// Name of a dtype, also of a value outside the enumeration. Pure.
std::string dtype_text(DType dtype);

/// The same rules but for the weight format. Pure.
std::string sizes_refusal(const Caps& caps);

}  // namespace fourfold
