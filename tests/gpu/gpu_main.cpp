// The program of the GPU tests: runs them on GPU 0 and writes a part of the report, or merges parts. Needs nothing but
// itself, its case files and a driver.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>

#include "core/file.h"
#include "fourfold/fourfold.h"
#include "fourfold_version.h"
#include "gpu/catch_listener.h"
#include "gpu/flush_memory.h"
#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"
#include "gpu/gpu_report.h"

namespace fourfold::gpu_test {
namespace {

struct Options {
  std::string json, label = "run", depth_name = "full", cases, kernels_from, planted;
  double seconds = 0;
  std::string merge, mode = "quick";
  std::vector<std::string> parts, failed, skipped, passed_steps, sanitizers;
};

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::filesystem::path program_folder() { return std::filesystem::canonical("/proc/self/exe").parent_path(); }

Json device_json() {
  const GpuSurvey survey = survey_gpus();
  if (survey.gpus.empty()) return nullptr;
  const Gpu& first = survey.gpus.front();
  const Compiler compiler = find_compiler();
  return Json{{"name", first.device.name},
              {"arch", first.device.arch},
              {"compute_capability", first.compute_capability},
              {"multiprocessors", first.device.multiprocessors},
              {"memory_bytes", first.device.memory_bytes},
              {"gpus", survey.gpus.size()},
              {"driver", survey.driver_version},
              {"compiler", compiler.reason.empty() ? compiler.version : "none: " + compiler.reason}};
}

/// Collects results by suite and writes the part after every suite, so that a crash leaves what was known.
class PartWriter : public testing::EmptyTestEventListener {
 public:
  explicit PartWriter(const Options& options) : options_(options), device_(device_json()) {}

  void OnTestEnd(const testing::TestInfo& info) override {
    CheckResult& check = checks_[info.test_suite_name()];
    const testing::TestResult& result = *info.result();
    check.run += !result.Skipped();
    check.failed += result.Failed();
    check.skipped += result.Skipped();
    check.seconds += static_cast<double>(result.elapsed_time()) / 1000;
    constexpr int kReasonsATest = 3;  // a loop may fail a hundred times
    for (int i = 0, kept = 0; i < result.total_part_count() && kept < kReasonsATest; ++i) {
      const testing::TestPartResult& part = result.GetTestPartResult(i);
      if (part.passed()) continue;
      check.reasons.push_back(std::string(info.name()) + ": " + std::string(part.message()).substr(0, 1000));
      ++kept;
    }
  }
  void OnTestSuiteEnd(const testing::TestSuite&) override { write(false); }

  /// Adds a check that is no test of its own.
  void add(const std::string& name, const CheckResult& result) { checks_[name] = result; }

  void write(bool complete) const {
    if (options_.json.empty()) return;
    const BuiltFrom from = built_from(program_folder().string(), FOURFOLD_COMMIT);
    Json part = {{"kind", "gpu_part"},  {"label", options_.label},      {"commit", from.commit},
                 {"dirty", from.dirty}, {"depth", options_.depth_name}, {"device", device_},
                 {"complete", complete}};
    part["checks"] = Json::object();
    for (const auto& [name, result] : checks_) part["checks"][name] = check_json(result);
    const CallsInCapture& calls = calls_in_capture();
    part["in_capture"] = {{"captures", calls.captures.load()},
                          {"compiles", calls.compiles.load()},
                          {"loads", calls.loads.load()},
                          {"allocations", calls.allocations.load()},
                          {"synchronisations", calls.synchronisations.load()}};
    const KernelCounters counters = shared_counters();
    part["kernels"] = {{"from_pack", counters.from_pack},
                       {"from_disk", counters.from_disk},
                       {"compiled", counters.compiled},
                       {"loaded", counters.loaded}};
    write_file_atomically(options_.json, json_text(part));
  }

  /// Whether a check failed, of a test or added.
  bool any_failed() const {
    return std::any_of(checks_.begin(), checks_.end(), [](const auto& check) { return check.second.failed > 0; });
  }

 private:
  const Options& options_;
  Json device_;
  std::map<std::string, CheckResult> checks_;
};

/// Whether the kernels came from where they should: "pack" and "disk" forbid every compile.
CheckResult kernel_origin(const std::string& wanted) {
  const KernelCounters counters = shared_counters();
  CheckResult result;
  result.run = 1;
  const std::uint64_t found = wanted == "pack"   ? counters.from_pack
                              : wanted == "disk" ? counters.from_disk
                                                 : counters.compiled;
  const std::uint64_t all = counters.from_pack + counters.from_disk + counters.compiled;
  if (found > 0 && found == all) return result;
  result.failed = 1;
  result.reasons.push_back("kernels should come from " + wanted + " alone: " + std::to_string(counters.from_pack) +
                           " from the pack, " + std::to_string(counters.from_disk) + " from disk, " +
                           std::to_string(counters.compiled) + " compiled");
  return result;
}

/// A run with a planted fault, until a test sees it. 0 when one does.
int run_planted(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  PartWriter writer(options);
  if (const Compiler compiler = find_compiler(); !compiler.reason.empty()) {
    CheckResult skipped;
    skipped.skipped = 1;
    skipped.reasons.push_back("no compiler here: " + compiler.reason);
    writer.add("caught", skipped);
    writer.write(true);
    std::printf("skipped: no compiler here: %s\n", compiler.reason.c_str());
    return 0;
  }
  auto* listener = new CatchListener;  // gtest owns it
  testing::UnitTest::GetInstance()->listeners().Append(listener);
  testing::GTEST_FLAG(fail_fast) = true;
  [[maybe_unused]] const int tests_failed = RUN_ALL_TESTS();  // the listener knows which and why
  const bool planted = workspaces_are_short() || shared_counters().compiled > 0;
  const CheckResult caught =
      listener->result(planted, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  writer.add("caught", caught);
  writer.write(true);
  close_gpu();
  std::printf("%s: %s\n", options.planted.c_str(), caught.reasons.front().c_str());
  return caught.failed > 0 ? 1 : 0;
}

/// Whatever the tests will look at.
void set_up(const Options& options) {
  depth() = options.depth_name == "quick" ? Depth::quick : Depth::full;
  cases_folder() = options.cases.empty() ? (program_folder() / "cases").string() : options.cases;
  if (options.seconds > 0) set_deadline(options.seconds);
  if (!options.planted.empty()) plant(options.planted);
  gpu();
}

int run_tests(const Options& options) {
  try {
    if (!options.json.empty()) check_writable(options.json);  // before minutes of work
    set_up(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "fourfold_gpu_tests: %s\n", error.what());
    return error.exit_code();
  }
  if (!options.planted.empty()) return run_planted(options);
  auto* writer = new PartWriter(options);  // gtest owns it
  testing::UnitTest::GetInstance()->listeners().Append(writer);
  if (options.kernels_from == "compiler")
    if (const Compiler compiler = find_compiler(); !compiler.reason.empty()) {
      CheckResult skipped;
      skipped.skipped = 1;
      skipped.reasons.push_back("no compiler here: " + compiler.reason);
      writer->add("compiled_kernels", skipped);
      writer->write(true);
      std::printf("skipped: no compiler here: %s\n", compiler.reason.c_str());
      return 0;
    }
  int result = RUN_ALL_TESTS();
  const bool none_matched = testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  if (none_matched || (result != 0 && !writer->any_failed())) {
    CheckResult nothing;
    nothing.run = nothing.failed = 1;
    nothing.reasons.push_back(none_matched ? "no test matched the filter" : "a suite failed outside of its tests");
    std::fprintf(stderr, "fourfold_gpu_tests: %s\n", nothing.reasons.front().c_str());
    writer->add("tests", nothing);
    result = 1;
  }
  if (!options.kernels_from.empty()) {
    const CheckResult origin = kernel_origin(options.kernels_from);
    for (const std::string& reason : origin.reasons) std::printf("%s\n", reason.c_str());
    writer->add("kernel_origin", origin);
    if (origin.failed > 0) result = 1;
  }
  writer->write(true);
  close_gpu();
  return result;
}

/// "name=reason" in two; the reason may be empty.
std::pair<std::string, std::string> split(const std::string& text) {
  const std::size_t at = text.find('=');
  return {text.substr(0, at), at == std::string::npos ? std::string() : text.substr(at + 1)};
}

int run_merge(const Options& options) {
  constexpr std::uint64_t kMaxPartBytes = std::uint64_t{1} << 28;
  StepResults steps;
  steps.mode = options.mode;
  std::vector<Json> parts;
  for (const std::string& path : options.parts) {
    Json part = Json::parse(read_text_file(path, kMaxPartBytes), nullptr, false);
    if (part.is_object())
      parts.push_back(std::move(part));
    else  // the other parts' results count all the same
      steps.failed.push_back({std::filesystem::path(path).stem().string() + "/part", path + " is no JSON object"});
  }
  for (const std::string& text : options.failed) steps.failed.push_back(split(text));
  for (const std::string& text : options.skipped) steps.skipped.push_back(split(text));
  steps.passed = options.passed_steps;
  for (const std::string& text : options.sanitizers) {
    const auto [tool, value] = split(text);
    const bool is_count = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    steps.sanitizers.push_back({tool, is_count ? std::stoll(value) : -1, is_count ? std::string() : value});
  }
  Json report = merge_parts(parts, steps);
  if (parts.empty()) {
    const BuiltFrom from = built_from(program_folder().string(), FOURFOLD_COMMIT);
    report["commit"] = from.commit;
    report["dirty"] = from.dirty;
    report["device"] = device_json();
  }
  std::cout << summary(report) << std::flush;  // first: a report that finds no place must not take the results along
  write_file_atomically(options.merge, json_text(report));
  return passed(report) ? 0 : 1;
}

}  // namespace

int run_main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);  // takes its own arguments out
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  Options options;
  CLI::App app("Fourfold's tests on GPU 0. GoogleTest's own options are accepted too.", "fourfold_gpu_tests");
  app.add_option("--json", options.json, "Write this run's part of the report");
  app.add_option("--label", options.label, "Name of this run in the report")->capture_default_str();
  app.add_option("--depth", options.depth_name, "How much to try")->check(CLI::IsMember({"quick", "full"}));
  app.add_option("--cases", options.cases, "Folder of case files; cases/ beside the program unless given");
  app.add_option("--kernels-from", options.kernels_from, "Fail unless every kernel's code came from there")
      ->check(CLI::IsMember({"compiler", "disk", "pack"}));
  app.add_option("--seconds", options.seconds, "Tests of the pairwise set that begin later are skipped");
  app.add_flag("--plain-allocations", plain_allocations(), "Leave allocations to the driver: for memcheck");
  app.add_flag("--fresh-workspaces", fresh_workspaces(), "Leave workspaces and outputs as allocated: for initcheck");
  app.add_option("--plant", options.planted, "Plant a fault into the kernels; succeed when a test sees it");
  app.add_option("--merge", options.merge, "Merge the parts into this report, instead of running tests");
  app.add_option("--mode", options.mode, "With --merge: in a part, skips that are not on the list are failures")
      ->check(CLI::IsMember({"quick", "part1", "part2", "part3"}))
      ->capture_default_str();
  app.add_option("--failed", options.failed, "With --merge: STEP=REASON of a step that failed")
      ->allow_extra_args(false);
  app.add_option("--skipped", options.skipped, "With --merge: STEP=REASON")->allow_extra_args(false);
  app.add_option("--passed", options.passed_steps, "With --merge: STEP")->allow_extra_args(false);
  app.add_option("--sanitizer", options.sanitizers, "With --merge: TOOL=FINDINGS, or TOOL=WHY IT DID NOT RUN")
      ->allow_extra_args(false);
  app.add_option("parts", options.parts, "With --merge: files written by --json");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorCode::usage);  // --help is an error of CLI11's, too
  }
  try {
    return options.merge.empty() ? run_tests(options) : run_merge(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "fourfold_gpu_tests: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fourfold_gpu_tests: %s\n", error.what());
    return static_cast<int>(ErrorCode::internal);
  }
}

}  // namespace fourfold::gpu_test

int main(int argc, char** argv) { return fourfold::gpu_test::run_main(argc, argv); }
