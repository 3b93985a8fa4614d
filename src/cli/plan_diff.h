// Two plans that `plan --json` wrote, compared: `plan diff`.
#pragma once

#include <string>

namespace fourfold::cli {

/// Prints what changed. Returns 6 when the workspace or the weights of the largest rank grew, else 0. Throws bad_input
/// for a file that is no plan.
int diff_plans(const std::string& before, const std::string& after, bool json);

}  // namespace fourfold::cli
