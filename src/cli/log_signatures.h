// Lines that a log is known to have when something goes wrong, ours and those that operators published.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace fourfold::cli {

struct LogSignature {
  std::string_view name;
  std::string_view of;  ///< whose text it is: "fourfold", "vLLM", "PyTorch", ...
  /// A line is one when it has all parts of one of these, in this order; letters in any case.
  std::vector<std::vector<std::string_view>> parts;
  std::string_view meaning;
  std::string_view remedy;
  bool after_ready = false;  ///< counts only after a line that says that the server is ready
};

/// All of them; a line belongs to the first that it fits.
const std::vector<LogSignature>& log_signatures();
/// Parts of lines that say that a server takes requests.
std::span<const std::string_view> ready_lines();

}  // namespace fourfold::cli
