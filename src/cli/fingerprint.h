// One line, and its JSON, that says what is about to run: for the top of a log, and to compare with another one.
#pragma once

#include <cstdint>
#include <string>

#include "fourfold/backend.h"
#include "fourfold/model.h"
#include "fourfold/plan.h"
#include "output.h"

namespace fourfold::cli {

struct Fingerprint {
  std::string device;             ///< "h200 (sm_90a)"
  std::string what;               ///< the problem, or the model and its experts' format
  std::string bands;              ///< "1..6 7..64"; empty for a model
  std::int64_t capacity = 0;      ///< tokens of a call
  std::uint64_t arena_bytes = 0;  ///< 0 for a model
  std::uint64_t weight_bytes = 0;
  std::size_t kernels = 0;  ///< of the plan; linked into the program on a CPU
  KernelCounters counters;  ///< where they came from
  double seconds = 0;       ///< to resolve and load them, or to load the model
};

/// Resolves and loads the plan's kernels (warm_up) and says from where. Throws what warm_up throws.
Fingerprint warm_fingerprint(const Plan& plan, Backend& backend);
Fingerprint model_fingerprint(const Model& model, const std::string& folder, const Device& device);

/// "fourfold 0.1.0 (4dbbfe5, program 1f..) | h200 (sm_90a) | t64 ... | bands 1..64 | capacity 64 | arena ...".
std::string fingerprint_line(const Fingerprint& fingerprint);
Json fingerprint_json(const Fingerprint& fingerprint);
/// Writes the line to stderr.
void print_fingerprint(const Fingerprint& fingerprint);

/// XXH3-64 of the running program's file, 16 hex digits; "unknown" when it cannot be read.
std::string program_digest();

}  // namespace fourfold::cli
