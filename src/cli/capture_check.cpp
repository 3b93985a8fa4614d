// For each batch size: the kernels of its band, and where each would come from.
#include "capture_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "device_choice.h"
#include "fourfold/error.h"
#include "fourfold/gpu.h"
#include "fourfold/kernels.h"
#include "kernel_text.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr int kUnresolved = static_cast<int>(ErrorCode::unsupported);
constexpr const char* kLoadNote =
    "A kernel in a pack or in the cache still has to be loaded on the device: call warm_up(plan, backend) before the "
    "capture begins.";

struct Row {
  std::int64_t tokens = 0;
  std::vector<KernelState> kernels;  // of the band, in launch order
};

Device device_of(const CaptureOptions& options, const Problem& problem) {
  if (options.device.empty() && problem.arch.empty()) {
    const GpuSurvey survey = survey_gpus();
    if (survey.gpus.empty())
      throw Error(ErrorCode::usage, fmt::format("--capture: this machine has no GPU ({}); name one with --device h200, "
                                                "--device sm_90a or the like",
                                                survey.reason));
    return survey.gpus.front().device;
  }
  const Device device = device_to_plan_for(options.device, problem.arch);
  if (device.kind != DeviceKind::cuda)
    throw Error(ErrorCode::usage,
                "--capture is for GPUs: a CPU's kernels are part of the program and always there; "
                "name a GPU with --device");
  return device;
}

std::vector<Row> rows_of(const Plan& decision, const std::vector<std::int64_t>& sizes,
                         const std::vector<KernelState>& states) {
  std::vector<Row> rows;
  for (const std::int64_t tokens : sizes) {
    const std::int64_t capacity = decision.caps().max_tokens;
    if (tokens > capacity)
      throw Error(
          ErrorCode::unsupported,
          fmt::format("--capture {}: beyond the capacity, max_tokens = {}: such a batch runs in slices and never "
                      "as captured; the largest valid size is {}, or plan for {} tokens",
                      tokens, capacity, capacity, tokens));
    Row row{tokens, {}};
    for (const std::string& name : decision.band_for(tokens).kernels) {
      const auto state =
          std::find_if(states.begin(), states.end(), [&](const auto& known) { return known.name == name; });
      if (state == states.end())
        throw Error(ErrorCode::internal, fmt::format("kernel {} of the plan is in no list", name));
      row.kernels.push_back(*state);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_rows_json(const Problem& problem, const Device& device, const std::vector<Row>& rows,
                     const std::string& command) {
  Json sizes = Json::array();
  bool resolved = true;
  for (const Row& row : rows) {
    Json kernels = Json::array();
    for (const KernelState& kernel : row.kernels) kernels.push_back({{"name", kernel.name}, {"origin", kernel.origin}});
    const bool here = missing_kernels(row.kernels) == 0;
    resolved = resolved && here;
    sizes.push_back({{"tokens", row.tokens},
                     {"resolved", here},
                     {"state", resolution_text(row.kernels)},
                     {"kernels", std::move(kernels)},
                     {"command", here ? std::string() : command}});
  }
  print_json({{"problem", problem_text(problem)},
              {"device", device.name},
              {"architecture", device.arch},
              {"resolved", resolved},
              {"sizes", std::move(sizes)},
              {"note", kLoadNote}});
}

std::string rows_text(const Problem& problem, const Device& device, const std::vector<Row>& rows) {
  std::string text = fmt::format("captures of {} on {}\n", problem_text(problem), device_text(device));
  Table table({">tokens", "state", "kernels (missing ones marked *)"});
  for (const Row& row : rows) {
    std::vector<std::string> names;
    for (const KernelState& kernel : row.kernels) names.push_back((kernel.origin.empty() ? "*" : "") + kernel.name);
    table.add({format_count(row.tokens), resolution_text(row.kernels), fmt::format("{}", fmt::join(names, ", "))});
  }
  return text + table.text();
}

}  // namespace

int check_captures(const CaptureOptions& options) {
  Problem problem = parse_problem(options.problem);
  const Device device = device_of(options, problem);
  const Plan decision = plan(problem.caps, device);
  KernelLibrary library;
  const std::vector<Caps> caps{problem.caps};
  const std::vector<Row> rows = rows_of(decision, options.sizes, library.list(device.arch, caps));
  problem.arch.clear();  // the device says it
  const std::string command =
      fmt::format("fourfold kernels prewarm --arch {} --problem '{}'", device.arch, problem_text(problem));
  const bool resolved =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return missing_kernels(row.kernels) == 0; });
  if (options.json) {
    print_rows_json(problem, device, rows, command);
  } else {
    std::string text = rows_text(problem, device, rows);
    if (!resolved) {
      text += fmt::format("to resolve: {}\n", command);
      const KernelCompilerState compiler = library.compiler();
      if (!compiler.reason.empty())
        text += fmt::format("which needs NVRTC ({}), or bring a pack that was built elsewhere\n", compiler.reason);
    }
    write_stdout(text + kLoadNote + "\n");
  }
  return resolved ? 0 : kUnresolved;
}

}  // namespace fourfold::cli
