// One call checked against a known result: poisoned memory, replays, immutable inputs, planted faults. What case
// files, `verify moe` and the device matrix have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fourfold/verify.h"

namespace fourfold {

struct Comparison {
  bool ok = false;
  double max_error_over_bound = 0;  // over elements where both sides are finite
  std::int64_t compared = 0;
  std::string reason;  // first element that differs, or why nothing could be compared
};

/// Compares `out` (bf16, f16 or f32, any shape) with `expected` and `bound`, one entry per element: NaN wants NaN,
/// an infinity the same infinity, everything else a finite value within `bound`. Nothing to compare is a failure.
/// Pure, allocates only the reason.
Comparison compare_output(ConstTensorView out, std::span<const double> expected, std::span<const double> bound);

/// A call with its true result. Views only.
struct KnownCall {
  std::string name;
  Caps caps;
  const StackedExperts* experts = nullptr;
  MoeTensors inputs;                 // x, topk_ids, topk_weights, expert_map; the rest is set by check_call
  std::span<const double> expected;  // [T, H]
  std::span<const double> bound;     // [T, H]
  std::uint64_t invalid_ids = 0;
};

/// Plans, packs and runs `call` on `backend`: with a zeroed workspace, then with a poisoned one, then `replays` times
/// more with whatever the runs left there. All must give the same bits, count `invalid_ids` each time, leave the inputs
/// and 4 KiB before and behind every tensor and the workspace alone, and write every element of a poisoned output; the
/// result must fit `expected`. `inject` then corrupts the
/// result. Never throws for what the call does: refusals and failures are in the result. Allocates.
CaseResult check_call(const KnownCall& call, Backend& backend, Inject inject, int replays);

}  // namespace fourfold
