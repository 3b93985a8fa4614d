// What a run of the GPU tests says, as JSON: parts, written by one run each, and the report merged from them.
// docs/gpu_check.md describes the fields.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fourfold::gpu_test {

using Json = nlohmann::ordered_json;

/// Tests of one suite.
struct CheckResult {
  std::int64_t run = 0;  ///< passed or failed
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
  std::vector<std::string> reasons;  ///< "test: why it was skipped" and "test: what failed", in this order
  double seconds = 0;
};
Json check_json(const CheckResult& result);

/// The commit a folder of programs was built from: its file COMMIT has the hash in the first line, "dirty" or "clean"
/// in the second. Without that file: `built_commit` as `git describe --dirty` wrote it.
struct BuiltFrom {
  std::string commit;
  bool dirty = false;
};
BuiltFrom built_from(const std::string& folder, const std::string& built_commit);

/// What a sanitizer found, or why it could not run.
struct SanitizerResult {
  std::string tool;            ///< "memcheck"
  std::int64_t findings = -1;  ///< -1: it did not run
  std::string reason;          ///< why not
};

/// A test that may be skipped where every other skip is a failure, because nothing that the part proves is lost.
struct AllowedSkip {
  const char* suite;
  const char* test;
  const char* reason;       ///< how the reason that the test gives begins
  bool quick_depth;         ///< only in parts that ran at --depth quick
  const char* explanation;  ///< why nothing is lost
};
/// The whole list. docs/gpu_check.md has it too.
std::span<const AllowedSkip> allowed_skips();

/// Steps that left no part behind, and what is not in parts.
struct StepResults {
  std::vector<std::pair<std::string, std::string>> failed;   ///< step, reason
  std::vector<std::pair<std::string, std::string>> skipped;  ///< step, reason
  std::vector<std::string> passed;                           ///< steps
  std::vector<SanitizerResult> sanitizers;
  std::string mode = "quick";  ///< quick, part1, part2 or part3
};

/// The report: kind "gpu_check". Checks are named LABEL/SUITE. A part that is not complete, parts of two commits and a
/// report in which nothing ran and nothing was skipped with a reason are failures of their own. In every mode but quick
/// a skip that is not in allowed_skips() is a failure: what was to be proved was not. Pure; throws std::runtime_error
/// for a part that is none.
Json merge_parts(const std::vector<Json>& parts, const StepResults& steps);

/// Whether nothing failed, no sanitizer found anything and nothing forbidden happened in a capture.
bool passed(const Json& report);
/// A table of checks and one line of totals, for people.
std::string summary(const Json& report);

}  // namespace fourfold::gpu_test
