// From --arch and --problem to an architecture and caps.
#include "kernel_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device_choice.h"
#include "fourfold/error.h"
#include "fourfold/gpu.h"
#include "fourfold/kernels.h"

namespace fourfold::cli {

void add_kernel_options(CLI::App& verb, KernelChoice& choice) {
  verb.add_option(
      "--arch", choice.architecture,
      fmt::format("{}; default: a problem's @arch, else the first GPU's", fmt::join(kernel_architectures(), ", ")));
  verb.add_option("--problem", choice.problems,
                  "only the kernels of this problem, as 't64 k8 e128 h2048 i768 nvfp4'; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

ChosenKernels chosen_kernels(const KernelChoice& choice) {
  ChosenKernels chosen;
  chosen.architecture = choice.architecture;
  for (const std::string& text : choice.problems) {
    const Problem problem = parse_problem(text);
    chosen.problems.push_back(problem.caps);
    if (problem.arch.empty()) continue;
    const Device device = device_to_plan_for("", problem.arch);
    if (device.kind != DeviceKind::cuda)
      throw Error(ErrorCode::usage, fmt::format("--problem '{}': a CPU's kernels are part of the program; only a GPU's "
                                                "are files",
                                                text));
    if (chosen.architecture.empty()) chosen.architecture = device.arch;
    if (chosen.architecture != device.arch)
      throw Error(ErrorCode::usage, fmt::format("--problem '{}' is for {}, but the kernels asked for are for {}; leave "
                                                "one of the two out",
                                                text, device.arch, chosen.architecture));
  }
  if (!chosen.architecture.empty()) return chosen;
  const GpuSurvey survey = survey_gpus();
  if (survey.gpus.empty())
    throw Error(ErrorCode::usage,
                fmt::format("--arch is missing, and this machine has no GPU to take it from ({}); name one of {}",
                            survey.reason, fmt::join(kernel_architectures(), ", ")));
  chosen.architecture = survey.gpus.front().device.arch;
  return chosen;
}

}  // namespace fourfold::cli
