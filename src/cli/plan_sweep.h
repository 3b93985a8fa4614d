// What capacities cost and buy: `plan --sweep`, `--fit`, `--fit-tokens`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "output.h"
#include "plan_report.h"

namespace fourfold::cli {

/// As the user wrote it.
struct SweepArguments {
  std::string sweep;                       ///< "capacity=512,1024,1536"
  std::int64_t chunk = 0;                  ///< tokens that arrive at once; 0: the largest capacity of the sweep
  std::vector<std::string> bench;          ///< JSON files of bench moe with capacities
  std::string fit;                         ///< bytes of the arena
  std::optional<std::int64_t> fit_tokens;  ///< KV tokens that must fit beside the arena
  bool asks_fit() const noexcept { return !fit.empty() || fit_tokens; }
  bool empty() const noexcept { return sweep.empty() && !asks_fit(); }
};

/// Adds the keys "sweep" and "fit" to `json`, or their tables to `text`: of ours, unless the report refused it, and of
/// the systems of --compare. Throws usage for arguments that say nothing, unsupported with the numbers when nothing
/// fits.
void add_sweep_json(const PlanReport& report, const SweepArguments& arguments, Json& json);
std::string sweep_text(const PlanReport& report, const SweepArguments& arguments);

}  // namespace fourfold::cli
