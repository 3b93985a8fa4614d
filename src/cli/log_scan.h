// Reads a log and says what known lines in it mean: `doctor --scan`.
#pragma once

#include <cstdint>
#include <string>

namespace fourfold::cli {

struct ScanOptions {
  std::string file;            ///< "-" is stdin
  std::int64_t from_line = 1;  ///< earlier lines are not judged
  bool json = false;
};

/// Prints the signatures that were found, each with its meaning and what to do. Returns 0, also when nothing was found.
/// Throws bad_input for a file that cannot be read.
int scan_log(const ScanOptions& options);

}  // namespace fourfold::cli
