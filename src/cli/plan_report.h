// What `plan` says of a request: the arena, bands, weights, ranks, prices in KV tokens; as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fourfold/plan.h"
#include "fourfold/reference.h"
#include "output.h"
#include "plan_request.h"

namespace fourfold::cli {

/// A request with its plans.
struct PlanReport {
  PlanRequest request;
  std::string refused;               ///< why there is no plan; the price of the weights stands all the same
  std::vector<Plan> plans;           ///< by rank; empty when refused
  std::size_t shown = 0;             ///< the rank with the largest workspace, the first of them
  std::vector<ReferenceBill> bills;  ///< of other systems, for the rank that is shown

  const Caps& caps() const noexcept { return request.ranks[shown].caps; }
  std::uint64_t max_workspace_bytes() const noexcept;
  std::uint64_t sum_workspace_bytes() const noexcept;
  /// Experts of all layers on the rank that is shown.
  std::uint64_t expert_total_bytes() const;
  /// By how much they alone exceed the device's memory; 0 when they do not, or the memory is not known.
  std::uint64_t memory_short_bytes() const;
};

/// What captured graphs take beside the arena, as far as it can be told without an engine. `nodes`: every size has a
/// graph of its own, with each launch of its band in every layer with experts; the engine's own nodes come on top.
/// `pool_bytes`: one x and one out of the largest size, shared by all sizes and layers; an engine that keeps buffers
/// for each size, or other layers' temporaries, has more. The driver's own memory for nodes is in neither.
struct GraphEstimate {
  std::int64_t nodes = 0;
  std::uint64_t pool_bytes = 0;
};
/// The report has plans, and every capture size is at most their capacity.
GraphEstimate graph_estimate(const PlanReport& report);

/// Plans every rank. A format that can be priced but not run (exl3) is a report with `refused`; any other refusal is
/// thrown as unsupported. `systems` are requests of reference_bill.
PlanReport make_report(PlanRequest request, const std::vector<std::string>& systems);

Json report_json(const PlanReport& report);
std::string report_text(const PlanReport& report, bool explain);

/// "26.1 MiB" and, where a token's price is known, "(1,858 KV tokens)".
std::string priced(const PlanRequest& request, std::uint64_t bytes);

}  // namespace fourfold::cli
