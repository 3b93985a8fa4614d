// The measuring protocol of bench moe, so that every speed claim has one instrument (docs/cli.md, "bench moe").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fourfold/backend.h"
#include "fourfold/plan.h"

namespace fourfold::cli {

inline constexpr int kMinTimedCalls = 15;

struct MoeBenchmarkOptions {
  int calls = 0;   ///< timed calls per token count, at least kMinTimedCalls; 0 chooses by time
  int layers = 0;  ///< layers in rotation; 0 chooses by size
  std::function<void(const std::string&)> log;  ///< progress in words; required
};

/// One token count. Times are of run() alone; weights, routing and binding are ready before.
struct MoeBenchmarkRow {
  std::int64_t tokens = 0;
  double ms_p10 = 0, ms_median = 0, ms_p90 = 0;
  double weight_gb_per_s = 0;         ///< bytes of the experts touched / time, median over calls
  double gflop_per_s = 0;             ///< FLOP / time, median over calls
  double floor_ms = 0;                ///< median over calls of max(bytes / read bandwidth, FLOP / bf16 peak)
  double over_floor = 0;              ///< ms_median / floor_ms
  std::uint64_t workspace_bytes = 0;  ///< of a plan for this count
  std::uint64_t output_hash = 0;      ///< of the output of one call with fixed inputs
};

struct MoeBenchmarkResult {
  std::vector<MoeBenchmarkRow> rows;
  Probes probes;  ///< best values of all passes
};

/// Throws usage for a token count of 0, unsupported for a refused problem, unavailable when memory is short.
MoeBenchmarkResult run_moe_benchmark(const Problem& problem, Backend& backend, const MoeBenchmarkOptions& options);

}  // namespace fourfold::cli
