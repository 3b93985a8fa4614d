// Builds and merges the JSON of GPU test runs.
#include "gpu/gpu_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace fourfold::gpu_test {
namespace {

constexpr const char* kCaptureCounts[] = {"captures", "compiles", "loads", "allocations", "synchronisations"};

Json one_check(std::int64_t failed, std::int64_t skipped, const std::string& reason) {
  CheckResult result;
  result.run = skipped > 0 ? 0 : 1;
  result.failed = failed;
  result.skipped = skipped;
  if (!reason.empty()) result.reasons.push_back(reason);
  return check_json(result);
}

constexpr AllowedSkip kAllowedSkips[] = {
    {"Capture", "OnDevice1WhileDevice0IsCurrent", "this machine has one GPU", false,
     "needs two GPUs; where there are two it runs"},
    {"LargeOffsets", "RowsOfTheInputAndTheOutput", "moves 18 GB", true, "runs at full depth, in part 3"},
    {"LargeOffsets", "ExpertsBehind32BitsOfWeights", "packs 4 GB", true, "runs at full depth, in part 3"},
    {"Residues", "EverySizeWithEveryCountAndFormat", "only in --part 1 and 3", true,
     "runs at full depth, in parts 1 and 3; Pairwise has every pair of it"}};

bool is_allowed(const std::string& reason, const std::string& suite, bool quick_depth) {
  return std::any_of(std::begin(kAllowedSkips), std::end(kAllowedSkips), [&](const AllowedSkip& skip) {
    return suite == skip.suite && reason.starts_with(std::string(skip.test) + ": " + skip.reason) &&
           (quick_depth || !skip.quick_depth);
  });
}

/// Turns the skips of a check that are not allowed into failures.
Json without_hidden_skips(Json check, const std::string& suite, bool quick_depth) {
  std::int64_t allowed = 0;
  for (const Json& reason : check["reasons"]) allowed += is_allowed(reason.get<std::string>(), suite, quick_depth);
  const std::int64_t hidden = check.value("skipped", std::int64_t{0}) - allowed;
  if (hidden <= 0) return check;
  check["skipped"] = allowed;
  check["failed"] = check.value("failed", std::int64_t{0}) + hidden;
  check["run"] = check.value("run", std::int64_t{0}) + hidden;
  check["reasons"].push_back(
      fmt::format("{} skipped; in this part a skip that is not on the list is a failure", hidden));
  return check;
}

void add_part(Json& report, const Json& part) {
  if (part.value("kind", "") != "gpu_part" || !part.contains("checks"))
    throw std::runtime_error("a part is none: its kind is not \"gpu_part\"");
  const std::string label = part.value("label", "");
  const std::string commit = part.value("commit", "");
  if (report["commit"].is_null()) report["commit"] = commit;
  if (report["commit"] != commit)
    report["checks"][label + "/commit"] =
        one_check(1, 0, fmt::format("built from {}, others from {}", commit, report["commit"].get<std::string>()));
  report["dirty"] = report["dirty"].get<bool>() || part.value("dirty", true);
  if (report["device"].is_null() && part.contains("device")) report["device"] = part["device"];
  const bool quick_depth = part.value("depth", "") == "quick", every_skip_is_fine = report["mode"] == "quick";
  for (const auto& [suite, check] : part["checks"].items())
    report["checks"][label + "/" + suite] =
        every_skip_is_fine ? check : without_hidden_skips(check, suite, quick_depth);
  if (!part.value("complete", false))
    report["checks"][label + "/complete"] = one_check(1, 0, "the program ended before its last test");
  if (part.contains("kernels")) report["kernels"][label] = part["kernels"];
}

/// Sums what happened in captures; null where no capture was made: nothing is known then.
void add_capture_counts(Json& report, const std::vector<Json>& parts) {
  std::int64_t sums[std::size(kCaptureCounts)] = {};
  for (const Json& part : parts)
    for (std::size_t i = 0; i < std::size(kCaptureCounts); ++i)
      if (part.contains("in_capture")) sums[i] += part["in_capture"].value(kCaptureCounts[i], std::int64_t{0});
  report["captures"] = sums[0];
  for (std::size_t i = 1; i < std::size(kCaptureCounts); ++i) {
    Json& field = report[std::string(kCaptureCounts[i]) + "_in_capture"];
    if (sums[0] > 0)
      field = sums[i];
    else
      field = nullptr;
  }
}

void add_sanitizers(Json& report, const std::vector<SanitizerResult>& sanitizers) {
  report["sanitizer_findings"] = nullptr;
  report["sanitizers"] = Json::object();
  std::int64_t findings = 0;
  bool any = false;
  for (const SanitizerResult& result : sanitizers) {
    Json& entry = report["sanitizers"][result.tool];
    entry["findings"] = nullptr;
    if (result.findings >= 0) {
      entry["findings"] = result.findings;
      findings += result.findings;
      any = true;
    }
    entry["reason"] = result.reason;
  }
  if (any) report["sanitizer_findings"] = findings;
}

void add_totals(Json& report) {
  std::int64_t run = 0, failed = 0, skipped = 0;
  for (const auto& [name, check] : report["checks"].items()) {
    run += check.value("run", std::int64_t{0});
    failed += check.value("failed", std::int64_t{0});
    skipped += check.value("skipped", std::int64_t{0});
  }
  if (run == 0 && skipped == 0) {
    report["checks"]["any"] = one_check(1, 0, "nothing ran and nothing was skipped with a reason");
    ++run;
    ++failed;
  }
  report["run"] = run;
  report["failed"] = failed;
  report["skipped"] = skipped;
}

/// The field's number; what is null counts as zero.
std::int64_t number(const Json& report, const std::string& field) {
  return report.contains(field) && report[field].is_number() ? report[field].get<std::int64_t>() : 0;
}

std::string number_text(const Json& report, const std::string& field) {
  return report.contains(field) && report[field].is_number() ? std::to_string(report[field].get<std::int64_t>())
                                                             : std::string("not measured");
}

}  // namespace

std::span<const AllowedSkip> allowed_skips() { return kAllowedSkips; }

Json check_json(const CheckResult& result) {
  return Json{{"run", result.run},
              {"failed", result.failed},
              {"skipped", result.skipped},
              {"reasons", result.reasons},
              {"seconds", result.seconds}};
}

BuiltFrom built_from(const std::string& folder, const std::string& built_commit) {
  std::ifstream file(folder + "/COMMIT");
  BuiltFrom from;
  std::string state;
  if (file.good() && std::getline(file, from.commit) && std::getline(file, state)) {
    from.dirty = state != "clean";
    return from;
  }
  constexpr std::string_view kDirty = "-dirty";
  from.dirty = built_commit.ends_with(kDirty);
  from.commit = from.dirty ? built_commit.substr(0, built_commit.size() - kDirty.size()) : built_commit;
  return from;
}

Json merge_parts(const std::vector<Json>& parts, const StepResults& steps) {
  Json report = {
      {"kind", "gpu_check"}, {"mode", steps.mode}, {"commit", nullptr}, {"dirty", false}, {"device", nullptr}};
  report["checks"] = Json::object();
  for (const Json& part : parts) add_part(report, part);
  for (const std::string& step : steps.passed) report["checks"][step] = one_check(0, 0, "");
  for (const auto& [step, reason] : steps.failed) report["checks"][step] = one_check(1, 0, reason);
  for (const auto& [step, reason] : steps.skipped)
    report["checks"][step] =
        steps.mode == "quick" ? one_check(0, 1, reason) : without_hidden_skips(one_check(0, 1, reason), step, false);
  add_sanitizers(report, steps.sanitizers);
  add_capture_counts(report, parts);
  add_totals(report);
  report["passed"] = passed(report);
  return report;
}

bool passed(const Json& report) {
  if (number(report, "failed") != 0 || number(report, "sanitizer_findings") != 0) return false;
  for (std::size_t i = 1; i < std::size(kCaptureCounts); ++i)
    if (number(report, std::string(kCaptureCounts[i]) + "_in_capture") != 0) return false;
  return true;
}

std::string summary(const Json& report) {
  std::string text = fmt::format("{:<32} {:>6} {:>7} {:>8} {:>8}\n", "check", "run", "failed", "skipped", "seconds");
  for (const auto& [name, check] : report["checks"].items()) {
    text += fmt::format("{:<32} {:>6} {:>7} {:>8} {:>8.1f}\n", name, number(check, "run"), number(check, "failed"),
                        number(check, "skipped"), check.value("seconds", 0.0));
    for (const auto& reason : check["reasons"]) {
      const std::string line = reason.get<std::string>();
      text += "    " + line.substr(0, std::min(line.find('\n'), std::size_t{160})) + "\n";
    }
  }
  for (const auto& [tool, result] : report["sanitizers"].items())
    text += fmt::format("{}: {} findings{}{}\n", tool, number_text(result, "findings"),
                        result["reason"].get<std::string>().empty() ? "" : ": ", result["reason"].get<std::string>());
  return text + fmt::format(
                    "{}: {} run, {} failed, {} skipped; sanitizer findings: {}; in {} captures: {} compiles, {} loads, "
                    "{} allocations, {} waits\n",
                    passed(report) ? "passed" : "FAILED", number(report, "run"), number(report, "failed"),
                    number(report, "skipped"), number_text(report, "sanitizer_findings"), number(report, "captures"),
                    number_text(report, "compiles_in_capture"), number_text(report, "loads_in_capture"),
                    number_text(report, "allocations_in_capture"), number_text(report, "synchronisations_in_capture"));
}

}  // namespace fourfold::gpu_test
