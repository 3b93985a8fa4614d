// fourfold plan: what a problem would run and what it would cost, without running it.
#include <fmt/format.h>

#include "command.h"
#include "fourfold/error.h"
#include "output.h"
#include "plan_check.h"
#include "plan_diff.h"
#include "plan_report.h"
#include "plan_request.h"
#include "plan_svg.h"
#include "plan_sweep.h"

namespace fourfold::cli {
namespace {

constexpr int kRefused = static_cast<int>(ErrorCode::unsupported);

struct Options {
  PlanArguments request;
  SweepArguments sweep;
  std::vector<std::string> compare;
  std::string svg;
  bool explain = false;
  bool json = false;
  // plan diff, plan check
  std::string before, after, config;
  bool diff_json = false, check_json = false;
};

int run_plan(const Options& options) {
  const PlanReport report = make_report(plan_request(options.request), options.compare);
  const bool questions = !options.sweep.empty();
  // Of weights that are priced and not run, there is still what other systems reserve.
  if (questions && !report.refused.empty() && report.bills.empty()) throw Error(ErrorCode::unsupported, report.refused);
  if (!options.sweep.bench.empty() && options.sweep.sweep.empty())
    throw Error(ErrorCode::usage, "--bench adds measured times to --sweep; give both");
  if (options.sweep.chunk > 0 && options.sweep.sweep.empty())
    throw Error(ErrorCode::usage, "--chunk says how many tokens a --sweep is about; give both");
  if (!options.svg.empty() && report.plans.empty()) throw Error(ErrorCode::unsupported, report.refused);
  if (options.json) {
    Json json = report_json(report);
    add_sweep_json(report, options.sweep, json);
    if (!options.svg.empty()) write_file(options.svg, plan_svg(report.plans[report.shown]));
    print_json(json);
  } else {
    std::string text;
    if (questions)
      text = fmt::format("{}\n", problem_text({report.caps(), report.request.problem.tokens, {}})) +
             (report.refused.empty() ? "" : "  refused: " + report.refused + "\n") + sweep_text(report, options.sweep);
    else
      text = report_text(report, options.explain);
    if (!options.svg.empty()) write_file(options.svg, plan_svg(report.plans[report.shown]));
    write_stdout(text);
  }
  return report.refused.empty() ? 0 : kRefused;
}

void add_diff(CLI::App& verb, const std::shared_ptr<Options>& options, Command& command) {
  CLI::App* diff = verb.add_subcommand("diff", "what changed between two plans; exits with 6 when it grew");
  diff->add_option("before", options->before, "written by plan PROBLEM --json")->required();
  diff->add_option("after", options->after, "written by plan PROBLEM --json")->required();
  add_json_flag(*diff, options->diff_json);
  diff->footer("Examples:\n  fourfold plan diff before.json after.json");
  diff->callback([options, &command] {
    command.run = [options] { return diff_plans(options->before, options->after, options->diff_json); };
  });
}

void add_check(CLI::App& verb, const std::shared_ptr<Options>& options, Command& command) {
  CLI::App* check = verb.add_subcommand("check", "a server's configuration against what a plan can serve");
  check->add_option("config", options->config, "a JSON file; its keys are in docs/cli.md")->required();
  add_json_flag(*check, options->check_json);
  check->footer("Examples:\n  fourfold plan check server.json");
  check->callback(
      [options, &command] { command.run = [options] { return check_config(options->config, options->check_json); }; });
}

}  // namespace

void add_plan_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("plan", "show the kernels and the exact memory of a problem (runs nothing)");
  add_plan_request_options(*verb, options->request);
  verb->add_option("--compare", options->compare,
                   "other systems' reservation: b12x, b12x:block=64, b12x-trellis, flashinfer:tile=64, marlin")
      ->delimiter(',');
  verb->add_option("--sweep", options->sweep.sweep, "what capacities cost and buy: capacity=512,1024,1536,3072");
  verb->add_option("--chunk", options->sweep.chunk, "with --sweep: tokens that arrive at once; default the largest")
      ->check(CLI::Range(std::int64_t{1}, (std::int64_t{1} << 31) - 1));
  verb->add_option("--bench", options->sweep.bench, "with --sweep: JSON of bench moe --capacity, for measured times")
      ->delimiter(',');
  verb->add_option("--fit", options->sweep.fit, "the largest capacity whose arena is at most this, as 300MiB");
  verb->add_option("--fit-tokens", options->sweep.fit_tokens, "the largest capacity that leaves room for N KV tokens")
      ->check(CLI::Range(std::int64_t{0}, INT64_MAX));
  verb->add_flag("--explain", options->explain, "also the candidates that declined, and why");
  verb->add_option("--svg", options->svg, "draw the arena into this file: segments over steps");
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold plan 't64 k8 e128 h2048 i768 nvfp4 bf16 silu'\n"
      "  fourfold plan 't3072 k8 e160 h6144 i512 nvfp4 bf16 silu' --device rtx-pro-6000 --compare b12x,marlin\n"
      "  fourfold plan --model DIR --tp 4 --max-tokens 1024 --device h200 --capture 1,2,4,8\n"
      "  fourfold plan 't1 k8 e160 h6144 i512' --device h200 --sweep capacity=512,1024,3072 --kv-bytes-per-token "
      "14768\n"
      "  fourfold plan 't1 k8 e160 h6144 i512' --device h200 --fit 30MiB\n"
      "  fourfold plan diff before.json after.json\n"
      "  fourfold plan check server.json");
  verb->require_subcommand(0, 1);
  add_diff(*verb, options, command);
  add_check(*verb, options, command);
  verb->callback([options, verb, &command] {
    if (!verb->get_subcommands().empty()) return;
    command.run = [options] { return run_plan(*options); };
  });
}

}  // namespace fourfold::cli
