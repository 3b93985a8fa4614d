// fourfold plan: what a problem would run and what it would cost, without running it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.h"
#include "device_choice.h"
#include "fourfold/plan.h"
#include "output.h"

namespace fourfold::cli {
namespace {

struct Options {
  std::string problem;
  std::string device;
  bool json = false;
};

void print_plan_json(const Plan& plan) {
  Json segments = Json::array(), bands = Json::array(), declined = Json::array();
  for (const Segment& segment : plan.segments())
    segments.push_back({{"name", segment.name},
                        {"offset", segment.offset_bytes},
                        {"bytes", segment.bytes},
                        {"first_step", segment.first_step},
                        {"last_step", segment.last_step},
                        {"formula", segment.formula}});
  for (const Band& band : plan.bands())
    bands.push_back({{"min_tokens", band.min_tokens}, {"max_tokens", band.max_tokens}, {"kernels", band.kernels}});
  for (const Declined& entry : plan.declined())
    declined.push_back({{"candidate", entry.candidate}, {"reason", entry.reason}});
  print_json({{"workspace_bytes", plan.workspace_bytes()},
              {"weight_bytes", plan.weight_bytes()},
              {"steps", plan.steps()},
              {"segments", std::move(segments)},
              {"bands", std::move(bands)},
              {"declined", std::move(declined)},
              {"notes", plan.notes()}});
}

std::string step_text(const Plan& plan, int step) {
  const auto& steps = plan.steps();
  return step >= 0 && static_cast<std::size_t>(step) < steps.size() ? steps[step] : std::to_string(step);
}

std::string plan_text(const Problem& problem, const Plan& plan) {
  std::string text = fmt::format("{} on {}\n", problem_text(problem), device_text(plan.device()));
  if (!plan.device().isa_fallback_reason.empty()) text += "  " + plan.device().isa_fallback_reason + "\n";

  text += "\nbands\n";
  Table bands({">tokens", ">token tile", ">column tile", "kernels"});
  for (const Band& band : plan.bands())
    bands.add({fmt::format("{} .. {}", format_count(band.min_tokens), format_count(band.max_tokens)),
               std::to_string(band.token_tile), std::to_string(band.column_tile),
               fmt::format("{}", fmt::join(band.kernels, ", "))});
  text += bands.empty() ? "  none: no token count above 0 is served\n" : bands.text();

  if (!plan.declined().empty()) {
    text += "\ndeclined\n";
    Table declined({"candidate", "reason"});
    for (const Declined& entry : plan.declined()) declined.add({entry.candidate, entry.reason});
    text += declined.text();
  }

  text += fmt::format("\nworkspace: {} bytes ({})\n", format_count(static_cast<std::int64_t>(plan.workspace_bytes())),
                      format_bytes(plan.workspace_bytes()));
  Table segments({"segment", ">offset", ">bytes", "steps", "formula"});
  for (const Segment& segment : plan.segments())
    segments.add({segment.name, format_count(static_cast<std::int64_t>(segment.offset_bytes)),
                  format_count(static_cast<std::int64_t>(segment.bytes)),
                  segment.first_step == segment.last_step
                      ? step_text(plan, segment.first_step)
                      : step_text(plan, segment.first_step) + " .. " + step_text(plan, segment.last_step),
                  segment.formula});
  text += segments.text();
  text += fmt::format("\nweights: {} bytes a layer ({})\n",
                      format_count(static_cast<std::int64_t>(plan.weight_bytes())), format_bytes(plan.weight_bytes()));
  if (!plan.notes().empty()) text += "\nnotes\n";
  for (const std::string& note : plan.notes()) text += "  " + note + "\n";
  return text;
}

int run_plan(const Options& options) {
  const Problem problem = parse_problem(options.problem);
  const Plan decision = plan(problem.caps, device_to_plan_for(options.device, problem.arch));
  if (options.json)
    print_plan_json(decision);
  else
    write_stdout(plan_text(problem, decision));
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("plan", "show the kernels and the exact memory of a problem (runs nothing)");
  verb->add_option("problem", options->problem, "as 't64 k8 e128 h2048 i768 nvfp4 bf16 silu'; grammar in docs/cli.md")
      ->required();
  verb->add_option("--device", options->device, "cpu (this machine) or a preset: h200, b200, ...");
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold plan 't64 k8 e128 h2048 i768 nvfp4 bf16 silu'\n"
      "  fourfold plan 't1,16,512 k4 e32 h2880 i2880 mxfp4 bf16 swiglu_oai bias' --device cpu --json");
  verb->callback([options, &command] { command.run = [options] { return run_plan(*options); }; });
}

}  // namespace fourfold::cli
