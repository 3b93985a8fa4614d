// One line, and its JSON, that says what is about to run: for the top of a log, and to compare with another one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fourfold/backend.h"
#include "fourfold/model.h"
#include "fourfold/plan.h"
#include "output.h"

namespace fourfold::cli {

/// Of a run of several plans: the largest capacity, arena and weights, and all kernels, each counted once.
struct Fingerprint {
  std::string device;         ///< "NVIDIA H200 (sm_90a), 132 SMs"
  std::string what;           ///< the problem, the model and its experts' format, or how many problems
  std::size_t plans = 0;      ///< of the run; 0 for a model without 4-bit experts
  std::string bands;          ///< "1..6 7..64"; "various" when the plans differ, "none" without any
  std::int64_t capacity = 0;  ///< tokens of a call
  std::int64_t context = 0;   ///< of a model: positions of its KV cache
  std::uint64_t arena_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::size_t kernels = 0;  ///< of the plans; linked into the program on a CPU
  KernelCounters counters;  ///< where they came from
  double seconds = 0;       ///< to resolve and load them, or to load the model
};

/// Resolves and loads the plans' kernels (warm_up) and says from where. Throws what warm_up throws.
Fingerprint warm_fingerprint(std::span<const Plan> plans, std::string what, Backend& backend);
/// Of one problem.
Fingerprint warm_fingerprint(const Plan& plan, Backend& backend);
/// Of problems that are run one by one: those that the device refuses, or whose kernels cannot be had, are left to the
/// run, which says so of each.
Fingerprint warm_fingerprint(std::span<const Caps> problems, std::string what, Backend& backend);
Fingerprint model_fingerprint(const Model& model, const std::string& folder, Backend& backend);

/// "fourfold 0.1.0 (4dbbfe5, sources 1f.., program 2e..) | NVIDIA H200 (sm_90a), 132 SMs | t64 ... | bands 1..64 | ..."
std::string fingerprint_line(const Fingerprint& fingerprint);
Json fingerprint_json(const Fingerprint& fingerprint);
/// Writes the line to stderr.
void print_fingerprint(const Fingerprint& fingerprint);

/// XXH3-64 of the running program's file, 16 hex digits; "unknown" when it cannot be read.
std::string program_digest();

}  // namespace fourfold::cli
