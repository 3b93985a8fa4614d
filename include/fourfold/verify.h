// Checking the operation on the user's own machine: case files, a built-in reference, planted faults.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fourfold/backend.h"
#include "fourfold/moe.h"
#include "fourfold/plan.h"

namespace fourfold {

/// A fault planted into a result, to prove that the comparison sees it.
enum class Inject : std::uint8_t { none, nan, zero, stale, swap };

/// One comparison.
struct CaseResult {
  std::string name;
  bool ok = false;
  double max_error_over_bound = 0;  ///< largest |out - expected| / bound; 0 when nothing was compared
  bool refused = false;             ///< the call was refused with code 3 or 4
  std::string reason;               ///< why refused or why not ok
};
/// Runs one case file (docs/cases.md) and compares. Throws bad_input only when the file is no case file.
CaseResult run_case(const std::string& file, Backend& backend, Inject inject = Inject::none);
/// What a case file asks of a plan. Reads the file. Throws bad_input only when it is no case file.
Caps case_caps(const std::string& file);

/// Writes a live call as a case file: inputs, packed source weights and, computed here in double precision, the
/// expected output with its bound. For bug reports. Written aside and renamed. Throws bad_input.
void dump_case(const std::string& file, const std::string& name, const Caps& caps, const StackedExperts& experts,
               const MoeTensors& tensors);

/// Random weights and tokens for `problem`, run and compared with the built-in double-precision reference. Packs a
/// layer on the backend and waits for its stream; a refused problem is a result.
CaseResult verify_problem(const Problem& problem, Backend& backend, std::uint64_t seed, Inject inject = Inject::none);

/// The problems of verify_device, in order, each with one token count. Pure.
std::vector<Problem> verify_problems(const Device& device);
/// The residue, poison and replay matrix (docs/cli.md, "verify"): the same calls each time, of fixed seeds, and on
/// tensor cores those of their tile sizes, too. `progress(done, total, name)` before each call, and once with done ==
/// total and an empty name; what it throws goes to the caller. Every result is returned. Each call packs a layer on the
/// backend, allocates and waits for its own stream. Throws unavailable when the device has too little memory.
std::vector<CaseResult> verify_device(Backend& backend, Inject inject,
                                      const std::function<void(int, int, const std::string&)>& progress = {});

/// Seeded random experts for a problem: what bench and verify use. Owns its memory.
class RandomExperts {
 public:
  /// Allocates. Throws usage when experts, hidden or intermediate is not positive.
  RandomExperts(const Caps& caps, std::uint64_t seed);
  ~RandomExperts();
  /// Views into this object; scales are chosen so that outputs stay near 1.
  const StackedExperts& stacked() const noexcept;

 private:
  struct Storage;
  std::unique_ptr<Storage> storage_;
};

}  // namespace fourfold
