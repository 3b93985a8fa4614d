// Sizes as people write them: 300MiB, 512M, 1.5GiB, 536870912.
#include "byte_size.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

/// The power of 1024 of a suffix; -1 for none that is known.
int power_of(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 0;
  constexpr std::string_view kLetters = "KMGT";
  const std::size_t at = kLetters.find(suffix.front());
  const std::string_view rest = suffix.substr(1);
  return at != std::string_view::npos && (rest.empty() || rest == "iB" || rest == "i") ? static_cast<int>(at) + 1 : -1;
}

}  // namespace

std::int64_t byte_size(const std::string& option, const std::string& text) {
  const auto refuse = [&]() -> Error {
    return Error(ErrorCode::usage,
                 fmt::format("{} '{}': write bytes below 2^63 as 314572800, 300MiB, 300M or 1.5GiB", option, text));
  };
  const char* const end = text.data() + text.size();
  std::int64_t whole = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, whole);
  if (error != std::errc() || whole < 0 || text.front() == '-') throw refuse();
  if (stop == end || *stop != '.') {
    const int power = power_of({stop, static_cast<std::size_t>(end - stop)});
    if (power < 0 || whole > (INT64_MAX >> (10 * power))) throw refuse();
    return whole << (10 * power);
  }
  double value = 0;
  const auto [after, bad] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const int power = power_of({after, static_cast<std::size_t>(end - after)});
  const double bytes = std::ldexp(value, 10 * power);
  if (bad != std::errc() || power < 1 || !(bytes < 9.2e18)) throw refuse();
  return static_cast<std::int64_t>(bytes);
}

}  // namespace fourfold::cli
