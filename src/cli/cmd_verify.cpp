// fourfold verify: compare this machine's results with references: a model, case files, a problem, the matrix.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>

#include "command.h"
#include "device_choice.h"
#include "fourfold/error.h"
#include "fourfold/verify.h"
#include "fourfold_version.h"
#include "injected_model.h"
#include "kernel_text.h"
#include "model_options.h"
#include "output.h"
#include "progress.h"
#include "report_file.h"

namespace fourfold::cli {
namespace {

struct Options {
  std::string device = "cpu";
  std::string inject = "none";
  bool json = false;
  // verify model
  ModelChoice model;
  std::string reference;
  std::optional<double> tolerance;
  // verify case, verify moe
  std::vector<std::string> files;
  std::string problem;
  std::uint64_t seed = 1;
  // the matrix
  std::string report = "fourfold-verify-report.json";
};

constexpr int kMismatch = static_cast<int>(ErrorCode::mismatch);

// fp32 sums of a few thousand terms differ by their order by about 1e-5 of a logit of size 10; 2e-4 leaves room for
// the depth of the network. With bf16 activations every matmul input is rounded by up to 2^-9 of its size; over the
// layers of a small model that moves logits of size 10 to 30 by some hundredths up to 0.25.
constexpr double kF32Tolerance = 2e-4;
constexpr double kBf16Tolerance = 0.25;

Inject inject_from(const std::string& name) {
  if (name == "nan") return Inject::nan;
  if (name == "zero") return Inject::zero;
  if (name == "stale") return Inject::stale;
  if (name == "swap") return Inject::swap;
  return Inject::none;
}

// A GPU's kernels are resolved while it works; a CPU's are part of the program.
void add_kernel_counters(Json& json, const Backend& backend) {
  if (backend.device().kind == DeviceKind::cuda) json["kernels"] = counters_json(backend);
}

Json case_json(const CaseResult& result) {
  return Json{{"name", result.name},
              {"ok", result.ok},
              {"max_error_over_bound", result.max_error_over_bound},
              {"refused", result.refused},
              {"reason", result.reason}};
}

void add_case_row(Table& table, const CaseResult& result) {
  table.add({result.ok ? "ok" : "FAIL", result.name,
             result.refused ? std::string("refused") : fmt::format("{:.3f}", result.max_error_over_bound),
             result.reason});
}

int run_verify_model(const Options& options) {
  const Inject inject = inject_from(options.inject);
  const double tolerance =
      options.tolerance.value_or(options.model.activations == "f32" ? kF32Tolerance : kBf16Tolerance);
  Fingerprint fingerprint;
  const std::unique_ptr<Model> model = inject_into(load_model(options.model, &fingerprint), inject);
  const double greedy_tolerance = options.model.activations == "f32" ? 0.0 : 2 * tolerance;
  const VerifyModelResult result = verify_model(*model, options.reference, tolerance, greedy_tolerance);
  if (options.json)
    print_json({{"max_logit_error", result.max_logit_error},
                {"max_nll_error", result.max_nll_error},
                {"greedy_matched", result.greedy_matched},
                {"greedy_total", result.greedy_total},
                {"ok", result.ok},
                {"fingerprint", fingerprint_json(fingerprint)}});
  else
    write_stdout(fmt::format(
        "{}: {}: largest logit error {:.3g} of {:.3g} allowed over {} logits, largest nll error "
        "{:.3g}, greedy tokens {} of {}\n",
        result.ok ? "ok" : "MISMATCH", options.model.folder, result.max_logit_error, tolerance,
        format_count(result.logits_compared), result.max_nll_error, result.greedy_matched, result.greedy_total));
  return result.ok ? 0 : kMismatch;
}

/// Of the files that can be read; the others are named when their turn comes.
Fingerprint case_fingerprint(const std::vector<std::string>& files, Backend& backend) {
  std::vector<Caps> problems;
  for (const std::string& file : files) {
    try {
      problems.push_back(case_caps(file));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_input) throw;
    }
  }
  const std::string what = files.size() == 1 ? files.front() : fmt::format("{} case files", files.size());
  return warm_fingerprint(problems, what, backend);
}

int run_verify_case(const Options& options) {
  const std::shared_ptr<Backend> backend = open_backend(options.device);
  const Fingerprint fingerprint = case_fingerprint(options.files, *backend);
  print_fingerprint(fingerprint);
  Json cases = Json::array();
  Table table({"", "case", ">error/bound", "reason"});
  std::size_t failed = 0;
  bool unreadable = false;
  for (const std::string& file : options.files) {
    CaseResult result;
    try {
      result = run_case(file, *backend, inject_from(options.inject));
    } catch (const Error& error) {
      // The other files still count; the exit code tells of the worst.
      if (error.code() != ErrorCode::bad_input || options.files.size() == 1) throw;
      result.name = file;
      result.reason = error.what();
      unreadable = true;
      std::fprintf(stderr, "fourfold: %s\n", without_controls(result.reason).c_str());
    }
    failed += result.ok ? 0 : 1;
    cases.push_back(case_json(result));
    add_case_row(table, result);
  }
  if (options.json) {
    Json json = Json::object();
    json["cases"] = std::move(cases);
    json["fingerprint"] = fingerprint_json(fingerprint);
    add_kernel_counters(json, *backend);
    print_json(json);
  } else {
    write_stdout(table.text() +
                 fmt::format("{} of {} cases ok\n", options.files.size() - failed, options.files.size()));
  }
  if (unreadable) return static_cast<int>(ErrorCode::bad_input);
  return failed == 0 ? 0 : kMismatch;
}

int run_verify_moe(const Options& options) {
  const Problem problem = parse_problem(options.problem);
  const std::shared_ptr<Backend> backend = open_backend_for(problem, options.device);
  const Support support = can_implement(problem.caps, backend->device());
  if (!support.ok) throw Error(ErrorCode::unsupported, support.reason);
  const Fingerprint fingerprint = warm_fingerprint(plan(problem.caps, backend->device()), *backend);
  print_fingerprint(fingerprint);
  const CaseResult result = verify_problem(problem, *backend, options.seed, inject_from(options.inject));
  if (options.json) {
    Json json = case_json(result);
    json["fingerprint"] = fingerprint_json(fingerprint);
    add_kernel_counters(json, *backend);
    print_json(json);
  } else {
    Table table({"", "problem", ">error/bound", "reason"});
    add_case_row(table, result);
    write_stdout(table.text());
  }
  return result.ok ? 0 : kMismatch;
}

Json matrix_report(const Options& options, const Device& device, const std::vector<CaseResult>& results,
                   double seconds) {
  std::size_t failed = 0;
  double worst = 0;
  Json cases = Json::array();
  for (const CaseResult& result : results) {
    failed += result.ok ? 0 : 1;
    worst = std::max(worst, result.max_error_over_bound);
    cases.push_back(case_json(result));
  }
  return Json{{"ok", failed == 0 && !results.empty()},
              {"total", results.size()},
              {"failed", failed},
              {"max_error_over_bound", worst},
              {"seconds", seconds},
              {"device", device.name},
              {"isa", cpu_isa_name(device.isa)},
              {"threads", device.threads},
              {"inject", options.inject},
              {"version", FOURFOLD_VERSION},
              {"commit", FOURFOLD_COMMIT},
              {"report", options.report},
              {"cases", std::move(cases)}};
}

Fingerprint matrix_fingerprint(Backend& backend) {
  std::vector<Caps> problems;
  for (const Problem& problem : verify_problems(backend.device())) problems.push_back(problem.caps);
  return warm_fingerprint(problems, fmt::format("{} problems of the matrix", problems.size()), backend);
}

int run_verify_device(const Options& options) {
  const std::shared_ptr<Backend> backend = open_backend(options.device);
  const ReportFile file("--report", options.report);
  const auto start = std::chrono::steady_clock::now();
  const Fingerprint fingerprint = matrix_fingerprint(*backend);
  print_fingerprint(fingerprint);
  std::vector<CaseResult> results;
  {
    Progress progress("verify", Progress::Unit::items, false);
    results = verify_device(*backend, inject_from(options.inject), [&](int done, int total, const std::string& name) {
      progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total), name);
    });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Json report = matrix_report(options, backend->device(), results, seconds);
  if (backend->device().kind == DeviceKind::cuda) {
    report["arch"] = backend->device().arch;
    report["multiprocessors"] = backend->device().multiprocessors;
  }
  report["fingerprint"] = fingerprint_json(fingerprint);
  add_kernel_counters(report, *backend);
  const bool ok = report["ok"].get<bool>();
  std::string unwritten;  // minutes of results are not lost with their file
  try {
    file.write(report.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
  } catch (const Error& error) {
    unwritten = error.what();
    std::fprintf(stderr, "fourfold: %s\n", without_controls(unwritten).c_str());
  }
  const int exit_code = !ok ? kMismatch : unwritten.empty() ? 0 : static_cast<int>(ErrorCode::bad_input);
  if (options.json) {
    print_json(report);
    return exit_code;
  }
  std::string text;
  Table table({"", "case", ">error/bound", "reason"});
  for (const CaseResult& result : results)
    if (!result.ok) add_case_row(table, result);
  if (!table.empty()) text += table.text();
  const auto failed = report["failed"].get<std::size_t>();
  text += fmt::format("{}: {} of {} checks ok on {} in {}; largest error is {:.3f} of its bound; report in {}\n",
                      ok ? "ok" : "MISMATCH", results.size() - failed, results.size(), device_text(backend->device()),
                      format_duration(seconds), report["max_error_over_bound"].get<double>(),
                      unwritten.empty() ? options.report : "no file");
  write_stdout(text);
  return exit_code;
}

void add_common(CLI::App& verb, Options& options) {
  verb.add_option("--inject", options.inject, "corrupt the result on purpose (nan, zero, stale, swap); must exit 5")
      ->check(CLI::IsMember({"none", "nan", "zero", "stale", "swap"}));
  add_json_flag(verb, options.json);
}

void add_device(CLI::App& verb, Options& options) {
  verb.add_option("--device", options.device, kRunDeviceHelp)->capture_default_str();
}

void add_verify_model(CLI::App& verify, const std::shared_ptr<Options>& options, Command& command) {
  CLI::App* verb = verify.add_subcommand("model", "compare a model's logits and greedy tokens with a reference.json");
  add_model_options(*verb, options->model);
  verb->add_option("--reference", options->reference, "a reference.json (format in docs/cli.md)")->required();
  verb->add_option("--tolerance", options->tolerance,
                   fmt::format("largest absolute logit error (default {} with f32 activations, {} with bf16)",
                               kF32Tolerance, kBf16Tolerance))
      ->check(CLI::NonNegativeNumber);
  add_common(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  fourfold verify model models/moe-13m --reference tests/data/moe-13m-eval/reference.json --activations f32\n"
      "  fourfold verify model models/moe-13m --reference tests/data/moe-13m-eval/reference.json --inject nan");
  verb->callback([options, &command] { command.run = [options] { return run_verify_model(*options); }; });
}

void add_verify_case(CLI::App& verify, const std::shared_ptr<Options>& options, Command& command) {
  CLI::App* verb = verify.add_subcommand("case", "run case files (docs/cases.md) and compare");
  verb->add_option("files", options->files, "case files, *.safetensors")->required();
  add_device(*verb, *options);
  add_common(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  fourfold verify case tests/data/cases/*.safetensors\n"
      "  fourfold verify case report.safetensors --device cpu --json");
  verb->callback([options, &command] { command.run = [options] { return run_verify_case(*options); }; });
}

void add_verify_moe(CLI::App& verify, const std::shared_ptr<Options>& options, Command& command) {
  CLI::App* verb = verify.add_subcommand("moe",
                                         "random weights and tokens of a problem against a double-precision "
                                         "reference");
  verb->add_option("problem", options->problem, "as 't64 k8 e128 h2048 i768 nvfp4 bf16 silu'")->required();
  verb->add_option("--seed", options->seed, "of weights and tokens")->check(seed_check())->capture_default_str();
  add_device(*verb, *options);
  add_common(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  fourfold verify moe 't1,17,64 k4 e8 h256 i96 nvfp4 bf16 silu'\n"
      "  fourfold verify moe 't16 k2 e8 h128 i64 int4 g32 zp f16 gelu_tanh' --seed 3 --json");
  verb->callback([options, &command] { command.run = [options] { return run_verify_moe(*options); }; });
}

}  // namespace

void add_verify_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("verify", "compare results with references, on this machine");
  add_device(*verb, *options);
  verb->add_option("--report", options->report, "where the matrix writes its report")->capture_default_str();
  add_common(*verb, *options);
  add_verify_model(*verb, options, command);
  add_verify_case(*verb, options, command);
  add_verify_moe(*verb, options, command);
  verb->require_subcommand(0, 1);
  verb->footer(
      "Without a subcommand: the self-test of this machine. Sizes with every residue, poisoned workspaces, guarded\n"
      "memory and replays against a reference in double precision; under a minute on a CPU, two on a GPU.\n"
      "Examples:\n"
      "  fourfold verify --device cpu\n"
      "  fourfold verify --device cuda:0 --report gpu0.json\n"
      "  fourfold verify --device cpu --inject stale --report /tmp/report.json   # must exit 5\n"
      "  fourfold verify case tests/data/cases/*.safetensors");
  verb->callback([options, verb, &command] {
    if (verb->get_subcommands().empty()) {
      command.run = [options] { return run_verify_device(*options); };
      return;
    }
    // Options of the matrix that the subcommand would ignore.
    const std::string name = verb->get_subcommands().front()->get_name();
    if (verb->count("--report") > 0)
      command.run = [name]() -> int {
        throw Error(ErrorCode::usage,
                    fmt::format("--report belongs to the matrix; verify {} writes none, use --json", name));
      };
    else if (name == "model" && verb->count("--device") > 0)
      command.run = []() -> int {
        throw Error(ErrorCode::usage, "--device stands before 'model'; write it after the subcommand");
      };
  });
}

}  // namespace fourfold::cli
