// Checks that throw Error with a formatted text, and overflow-checked size arithmetic.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "fourfold/error.h"

namespace fourfold {

/// Throws Error{code} with a formatted text. `text` names the value, its bound and the remedy.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

/// Throws unless `ok`.
template <class... Args>
void check(bool ok, ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]] throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

/// a * b for non-negative sizes; throws `code` naming `what` when it leaves int64 or an operand is negative.
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what,
                                ErrorCode code = ErrorCode::unsupported) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product))
    fail(code, "{}: {} x {} is not a size below 2^63", what, a, b);
  return product;
}

/// a + b for non-negative sizes; throws `code` naming `what` when it leaves int64 or an operand is negative.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what,
                                ErrorCode code = ErrorCode::unsupported) {
  std::int64_t sum = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum))
    fail(code, "{}: {} + {} is not a size below 2^63", what, a, b);
  return sum;
}

inline constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }
/// Smallest multiple of `m` that is at least `a`. The caller bounds `a` (no overflow check).
inline constexpr std::int64_t round_up(std::int64_t a, std::int64_t m) { return ceil_div(a, m) * m; }

}  // namespace fourfold
