// Reads and writes tile shapes; asks the planner for each.
#include "benchmark/tile_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "core/check.h"
#include "plan/cuda_tile_table.h"
#include "plan/plan_data.h"
#include "plan/problem.h"

namespace fourfold::benchmark {
namespace {

constexpr std::string_view kSums = "sums:", kRows = "rows:";

CudaTileShape shape_from(std::string_view option, std::string_view text) {
  CudaTileShape shape;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  bool ok = true;
  for (int* value : {&shape.row_tiles, &shape.token_steps, &shape.stages}) {
    if (value != &shape.row_tiles) ok = ok && at != end && *at++ == 'x';
    const auto [next, error] = std::from_chars(at, end, *value);
    ok = ok && error == std::errc() && *value > 0;
    at = next;
  }
  check(ok && at == end, ErrorCode::usage, "{} shape \"{}\" is none; write ROW_TILES x TOKEN_STEPS x STAGES as 2x1x3",
        option, text);
  return shape;
}

CudaTileChoice choice_of(const BenchmarkCase& subject) {
  CudaTileChoice choice;
  if (!subject.gate_up_shape.empty()) choice.gate_up = shape_from("gate_up", subject.gate_up_shape);
  std::string_view down = subject.down_shape;
  if (down.empty()) return choice;
  if (down.starts_with(kSums)) choice.sums = true;
  if (down.starts_with(kRows)) choice.sums = false;
  if (choice.sums) down.remove_prefix(kSums.size());
  choice.down = shape_from("down", down);
  return choice;
}

const CudaLaunch* launch_of(const Plan& plan, std::int64_t tokens, std::span<const CudaKernel> kernels) {
  const auto band = static_cast<std::size_t>(&plan.band_for(tokens) - plan.bands().data());
  for (const CudaLaunch& launch : plan.data()->cuda_bands[band].launches)
    if (std::find(kernels.begin(), kernels.end(), launch.kernel) != kernels.end()) return &launch;
  return nullptr;
}

std::string kernel_name(const Plan& plan, const CudaLaunch* launch) {
  return launch == nullptr ? std::string() : plan.data()->kernel_specs[static_cast<std::size_t>(launch->spec)].name();
}

/// The plan with a shape forced; empty when the device or the case does not take it.
std::optional<Plan> try_plan(const BenchmarkCase& subject, const Device& device) {
  try {
    return plan_of(subject, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

}  // namespace

std::string shape_text(const CudaTileShape& shape) {
  return fmt::format("{}x{}x{}", shape.row_tiles, shape.token_steps, shape.stages);
}

Plan plan_of(const BenchmarkCase& subject, const Device& device) {
  check(subject.caps.max_tokens > 0, ErrorCode::usage,
        "t0: nothing runs for 0 tokens, so nothing can be timed; use t1");
  check(subject.capacity >= 0, ErrorCode::usage, "capacity {} is negative; use at least 1 token", subject.capacity);
  Caps caps = subject.caps;
  if (subject.capacity > 0) caps.max_tokens = std::min(caps.max_tokens, subject.capacity);
  return plan_with_tiles(caps, device, choice_of(subject));
}

std::vector<Candidate> candidates(const BenchmarkCase& subject, const Device& device) {
  const auto tokens =
      subject.capacity > 0 ? std::min(subject.caps.max_tokens, subject.capacity) : subject.caps.max_tokens;
  static constexpr std::array kGateUp{CudaKernel::gate_up_tiles};
  static constexpr std::array kDown{CudaKernel::down_sums, CudaKernel::down_rows};
  const Plan own = plan_of(subject, device);
  const std::string own_gate_up = kernel_name(own, launch_of(own, tokens, kGateUp));
  const std::string own_down = kernel_name(own, launch_of(own, tokens, kDown));
  std::vector<Candidate> found;
  const auto add = [&](const char* stage, const BenchmarkCase& forced, const std::string& shape,
                       std::span<const CudaKernel> kernels, const std::string& own_name) {
    const std::optional<Plan> plan = try_plan(forced, device);
    if (!plan) return;
    std::string kernel = kernel_name(*plan, launch_of(*plan, tokens, kernels));
    const bool chosen = kernel == own_name;
    found.push_back({stage, std::move(kernel), shape, forced, chosen});
  };
  for (const CudaTileShape& shape : kGateUpShapes) {
    BenchmarkCase forced = subject;
    forced.gate_up_shape = shape_text(shape);
    add("gate_up", forced, forced.gate_up_shape, kGateUp, own_gate_up);
  }
  const auto add_down = [&](std::string_view kernel, std::span<const CudaTileShape> shapes) {
    for (const CudaTileShape& shape : shapes) {
      BenchmarkCase forced = subject;
      forced.down_shape = fmt::format("{}{}", kernel, shape_text(shape));
      add("down", forced, forced.down_shape, kDown, own_down);
    }
  };
  add_down(kSums, kDownSumsShapes);
  add_down(kRows, kDownRowsShapes);
  return found;
}

}  // namespace fourfold::benchmark
