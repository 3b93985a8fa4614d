// A server's configuration against what a plan can serve: `plan check CONFIG`.
#pragma once

#include <string>

namespace fourfold::cli {

/// Reads a JSON file (keys: docs/cli.md, "plan check") and prints every rule that is broken with the nearest valid
/// value. Returns 3 when one is broken, else 0. Throws bad_input for a file that is none, a key that is not known or a
/// value of the wrong type, and what planning throws.
int check_config(const std::string& path, bool json);

}  // namespace fourfold::cli
