// The largest capacity that leaves what must be left: `plan --fit`, `--fit-tokens`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "output.h"
#include "plan_report.h"

namespace fourfold::cli {

/// `bytes` is the arena's budget as the user wrote it, or `tokens` says how many KV tokens must fit beside it; of ours
/// and of the systems of --compare. Throws usage for both or for a price that is missing, unsupported with the numbers
/// when nothing of ours fits.
Json fit_json(const PlanReport& report, const std::string& bytes, std::optional<std::int64_t> tokens);
std::string fit_text(const PlanReport& report, const std::string& bytes, std::optional<std::int64_t> tokens);

}  // namespace fourfold::cli
