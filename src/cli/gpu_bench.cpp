// Measures case after case on a GPU and reports.
#include "gpu_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "bench_compare.h"
#include "bench_report.h"
#include "device_choice.h"
#include "fingerprint.h"
#include "fourfold/error.h"
#include "fourfold/gpu.h"
#include "fourfold_version.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr int kRegression = static_cast<int>(ErrorCode::regression);

void log_line(const std::string& text) { std::fprintf(stderr, "bench: %s\n", text.c_str()); }

/// An "@arch" in a problem must be that of the device.
void check_archs(const std::vector<NamedCase>& cases, const std::string& device, const Device& found) {
  for (const NamedCase& named : cases) {
    if (named.arch.empty() || device_to_plan_for("", named.arch).arch == found.arch) continue;
    throw Error(ErrorCode::usage, fmt::format("the problem says @{} but --device is {} ({}); leave one of the two out",
                                              named.arch, device, found.arch));
  }
}

BenchmarkOptions benchmark_options(const GpuBenchOptions& options) {
  BenchmarkOptions how;
  how.replays = options.replays;
  how.warm_up = options.warm_up;
  how.pause_ms = options.pause_ms;
  how.weight_sets = options.weight_sets;
  how.calls = options.calls;
  how.limits = {options.floor_tb_per_s.value_or(0) * 1e12, options.floor_tflop_per_s.value_or(0) * 1e12};
  how.log = log_line;
  return how;
}

Json report_json(const GpuBenchOptions& options, const Device& device, const FloorLimits& limits) {
  return Json{{"kind", "bench_moe"},
              {"version", FOURFOLD_VERSION},
              {"commit", build_commit()},
              {"dirty", build_is_dirty()},
              {"device", device.name},
              {"arch", device.arch},
              {"multiprocessors", device.multiprocessors},
              {"driver", survey_gpus().driver_version},
              {"protocol",
               {{"replays", options.replays},
                {"warm_up", options.warm_up},
                {"pause_ms", options.pause_ms},
                {"rotation", "weight sets of more than 2.5 GB together, new routing in every call of a graph"}}},
              {"limits", {{"tb_per_s", limits.bytes_per_s / 1e12}, {"tflop_per_s", limits.flop_per_s / 1e12}}},
              {"rows", Json::array()}};
}

/// Progress, with the time since the beginning.
class Count {
 public:
  explicit Count(std::size_t total) : total_(total) {}
  void done(const std::string& text) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    log_line(fmt::format("[{}/{}, {:.0f} s] {}", ++done_, total_, seconds, text));
  }

 private:
  std::size_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// What a mode adds to the report.
struct Outcome {
  std::string text;
  int exit_code = 0;
};

/// Measures case after case. One that fails does not take the others' results with it: it is named in the report, and
/// the first one's code is the exit code. Throws when every case fails.
template <class Measure>
void for_each_case(const std::vector<NamedCase>& cases, Json& report, Outcome& outcome, const Measure& measure) {
  Count count(cases.size());
  report["failed"] = Json::array();
  for (const NamedCase& named : cases) {
    try {
      count.done(measure(named));
    } catch (const Error& error) {
      if (report["failed"].size() + 1 == cases.size()) throw;
      if (report["failed"].empty()) outcome.exit_code = error.exit_code();
      report["failed"].push_back({{"problem", named.problem}, {"code", error.exit_code()}, {"text", error.what()}});
      count.done(fmt::format("{}: {}", named.problem, without_controls(error.what())));
    }
  }
}

std::string failed_text(const Json& report) {
  std::string text;
  for (const Json& failure : report["failed"])
    text += fmt::format("{}: {}\n", failure["problem"].get<std::string>(),
                        without_controls(failure["text"].get<std::string>()));
  return text;
}

Outcome measure_rows(GpuBenchmark& bench, const std::vector<NamedCase>& cases, const GpuBenchOptions& options,
                     Json& report) {
  // Read first: a file that is no report should not cost a minute.
  const Json old_report = options.compare.empty() ? Json() : read_bench_report(options.compare);
  std::vector<BenchmarkRow> rows;
  std::vector<NamedCase> measured;
  Outcome outcome;
  for_each_case(cases, report, outcome, [&](const NamedCase& named) {
    rows.push_back(bench.measure(named.subject));
    measured.push_back(named);
    report["rows"].push_back(row_json(named, rows.back()));
    return row_line(named, rows.back());
  });
  outcome.text = rows_text(measured, rows);
  if (options.compare.empty()) return outcome;
  const ReportComparison comparison = compare_reports(old_report, report, options.noise_percent / 100);
  report["comparison"] = {{"with", options.compare},     {"old_commit", old_report.value("commit", "")},
                          {"slower", comparison.slower}, {"faster", comparison.faster},
                          {"same", comparison.same},     {"rows", comparison.rows}};
  outcome.text += comparison.text;
  if (comparison.slower > 0 && outcome.exit_code == 0) outcome.exit_code = kRegression;
  return outcome;
}

Outcome measure_pairs(GpuBenchmark& bench, const std::vector<NamedCase>& cases, const GpuBenchOptions& options,
                      Json& report) {
  Outcome outcome;
  report["ab"] = Json::array();
  bool slower = false;
  for_each_case(cases, report, outcome, [&](const NamedCase& named) {
    const NamedCase a = with_words(named, options.ab[0]), b = with_words(named, options.ab[1]);
    const AbResult result = bench.compare(a.subject, b.subject);
    report["ab"].push_back(ab_json(named, options.ab[0], options.ab[1], result));
    outcome.text += ab_line(named, result) + "\n";
    slower = slower || result.low > 0;
    return ab_line(named, result);
  });
  if (slower && outcome.exit_code == 0) outcome.exit_code = kRegression;
  return outcome;
}

Outcome measure_variants(GpuBenchmark& bench, const std::vector<NamedCase>& cases, Json& report) {
  Outcome outcome;
  report["variants"] = Json::array();
  for_each_case(cases, report, outcome, [&](const NamedCase& named) {
    const std::vector<VariantRow> rows = bench.variants(named.subject);
    report["variants"].push_back(variants_json(named, rows));
    outcome.text += variants_text(named, rows);
    return fmt::format("{}: {} variants", named.problem, rows.size());
  });
  return outcome;
}

/// Of the cases as the planner serves them; shapes that --ab and --variants force come on top.
Fingerprint cases_fingerprint(const std::vector<NamedCase>& cases, Backend& backend) {
  std::vector<Caps> problems;
  for (const NamedCase& named : cases) {
    Caps caps = named.subject.caps;
    if (named.subject.capacity > 0) caps.max_tokens = std::min(caps.max_tokens, named.subject.capacity);
    if (std::find(problems.begin(), problems.end(), caps) == problems.end()) problems.push_back(caps);
  }
  const std::string what = cases.size() == 1 ? cases.front().problem : fmt::format("{} cases", cases.size());
  return warm_fingerprint(problems, what, backend);
}

}  // namespace

int run_gpu_bench(const GpuBenchOptions& options) {
  const std::vector<NamedCase> cases = cases_of(options.cases);
  const int ordinal = cuda_ordinal(options.device).value_or(0);
  const std::shared_ptr<Backend> backend = open_backend(options.device);
  check_archs(cases, options.device, backend->device());
  GpuBenchmark bench(backend, ordinal, benchmark_options(options));
  if (bench.limits().bytes_per_s <= 0)
    log_line(fmt::format("no limits are known for \"{}\": no floor and no ratio; give --floor-bandwidth",
                         backend->device().name));
  const Fingerprint fingerprint = cases_fingerprint(cases, *backend);
  print_fingerprint(fingerprint);
  Json report = report_json(options, backend->device(), bench.limits());
  report["fingerprint"] = fingerprint_json(fingerprint);
  const Outcome outcome = options.variants      ? measure_variants(bench, cases, report)
                          : !options.ab.empty() ? measure_pairs(bench, cases, options, report)
                                                : measure_rows(bench, cases, options, report);
  if (options.json)
    print_json(report);
  else
    write_stdout(device_text(backend->device()) + "\n" + outcome.text + failed_text(report));
  return outcome.exit_code;
}

}  // namespace fourfold::cli
