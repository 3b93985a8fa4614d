// Other systems' bills beside ours: `plan --compare`.
#pragma once

#include <string>

#include "plan_report.h"

namespace fourfold::cli {

/// One object by request, as "b12x:block=64": total_bytes, further totals, refused, segments, ...
Json compare_json(const PlanReport& report);
/// A table of the totals, then each system's components.
std::string compare_text(const PlanReport& report);

}  // namespace fourfold::cli
