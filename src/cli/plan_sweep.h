// What capacities cost and buy: `plan --sweep`, `--fit`, `--fit-tokens`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "output.h"
#include "plan_request.h"

namespace fourfold::cli {

/// As the user wrote it.
struct SweepArguments {
  std::string sweep;                       ///< "capacity=512,1024,1536"
  std::int64_t chunk = 0;                  ///< tokens that arrive at once; 0: the largest capacity of the sweep
  std::vector<std::string> bench;          ///< JSON files of bench moe with capacities
  std::string fit;                         ///< bytes of the arena
  std::optional<std::int64_t> fit_tokens;  ///< KV tokens that must fit beside the arena
  bool empty() const noexcept { return sweep.empty() && fit.empty() && !fit_tokens; }
};

/// Adds the keys "sweep" and "fit" to `json`, or their tables to `text`. Throws usage for arguments that say nothing,
/// unsupported with the numbers when nothing fits.
void add_sweep_json(const PlanRequest& request, const SweepArguments& arguments, Json& json);
std::string sweep_text(const PlanRequest& request, const SweepArguments& arguments);

/// The largest workspace of any rank at a capacity of `tokens`.
std::uint64_t workspace_at(const PlanRequest& request, std::int64_t tokens);
/// The largest capacity whose workspace is at most `bytes` on every rank; -1 for none.
std::int64_t largest_capacity(const PlanRequest& request, std::uint64_t bytes);

}  // namespace fourfold::cli
