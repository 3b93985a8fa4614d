// How a GPU serves a problem: with the naive kernels, four launches, one band for every token count.
#include "plan/cuda_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "fourfold/kernels.h"
#include "plan/arena.h"
#include "plan/cuda_weight_layout.h"

namespace fourfold {
namespace {

// The architectures that kernels are compiled for.
constexpr std::array<std::string_view, 4> kArchitectures{"sm_80", "sm_90a", "sm_100a", "sm_120a"};
// A multiprocessor of 65536 registers holds eight blocks of 128 threads: kNaiveBlocks of kernels/params/moe_params.h.
constexpr int kNaiveRegisters = 64;
// CUDA C++ Programming Guide, "Technical specifications per compute capability": largest y of a grid.
constexpr std::int64_t kMaxGridY = 65535;

std::string format_macro(const FormatSpec& format) {
  return fmt::format("{}{}", weight_format_name(format.format), format.zero_points ? "_zp" : "");
}

KernelSpec naive_kernel(std::string source, std::vector<std::pair<std::string, std::string>> defines) {
  KernelSpec spec;
  spec.source = std::move(source);
  spec.defines = std::move(defines);
  spec.block_threads = kCudaNaiveThreads;
  spec.max_registers = kNaiveRegisters;
  return spec;
}

void plan_kernels(PlanData& data) {
  const Caps& caps = data.caps;
  if (caps.max_tokens == 0) return;
  const std::string format = format_macro(caps.format);
  const std::string dtype = caps.activation_dtype == DType::f16 ? "f16" : "bf16";
  const std::string activation(activation_name(caps.activation.kind));
  data.kernel_specs.push_back(naive_kernel("moe/route_resolve.cu", {}));
  data.kernel_specs.push_back(naive_kernel("moe/route_sort.cu", {}));
  data.kernel_specs.push_back(
      naive_kernel("moe/gate_up_naive.cu", {{"ACTIVATION", activation}, {"DTYPE", dtype}, {"FORMAT", format}}));
  data.kernel_specs.push_back(naive_kernel("moe/down_naive.cu", {{"DTYPE", dtype}, {"FORMAT", format}}));
  Band band{1, caps.max_tokens, {}, 1, kCudaNaiveThreads};
  for (const KernelSpec& spec : data.kernel_specs) band.kernels.push_back(spec.name());
  data.bands.push_back(std::move(band));
}

void plan_segments(PlanData& data) {
  const Caps& caps = data.caps;
  const std::int64_t routes = checked_mul(caps.max_tokens, caps.top_k, "routes (max_tokens x top_k)");
  const std::int64_t row_bytes = caps.intermediate * dtype_bits(caps.activation_dtype) / 8;
  Arena arena;
  CudaSegments& cuda = data.cuda;
  cuda.route_expert = arena.add("route_expert", routes * 4, kCudaRouteResolve, kCudaDown, "routes * 4");
  cuda.expert_offsets = arena.add("expert_offsets", routes == 0 ? 0 : (caps.experts + 1) * 4, kCudaRouteSort,
                                  kCudaGateUp, "(experts + 1) * 4");
  cuda.sorted_routes = arena.add("sorted_routes", routes * 4, kCudaRouteSort, kCudaGateUp, "routes * 4");
  cuda.activated = arena.add("activated", checked_mul(routes, row_bytes, "activated intermediate"), kCudaGateUp,
                             kCudaDown, "routes * intermediate * 2");
  arena.place();
  data.segments = arena.segments();
  data.workspace_bytes = arena.bytes();
}

void explain(PlanData& data) {
  data.notes.push_back(
      "batch_invariant: always so and free of cost; one band, and every output element is one thread's sum in a fixed "
      "order");
  data.notes.push_back("subnormals: none is flushed, in activations, weights, scales or sums");
  data.notes.push_back("kernels: the naive ones, one thread an output element; every weight is read once per route");
  if (data.caps.format.format == WeightFormat::int4)
    data.notes.push_back(
        "int4 scales: kept in the dtype they come in, priced here as 16 bits (bf16 or f16); fp32 scales add to the "
        "weight bytes");
}

}  // namespace

std::vector<std::string> kernel_architectures() { return {kArchitectures.begin(), kArchitectures.end()}; }

std::string cuda_refusal(const Caps& caps, const Device& device) {
  if (caps.activation_dtype == DType::f32)
    return fmt::format("activation_dtype = F32 runs on a CPU only, not on device \"{}\" ({}); use BF16", device.name,
                       device.arch);
  if (std::find(kArchitectures.begin(), kArchitectures.end(), device.arch) == kArchitectures.end())
    return fmt::format(
        "device.arch = \"{}\" (device \"{}\"): there are kernels for {}; use one of these devices or \"cpu\"",
        device.arch, device.name, fmt::join(kArchitectures, ", "));
  if (caps.max_tokens > kMaxCudaRoutes / caps.top_k)
    return fmt::format(
        "max_tokens = {} at top_k = {}: a CUDA device serves at most {} routes (max_tokens x top_k) a call; use {}",
        caps.max_tokens, caps.top_k, kMaxCudaRoutes, kMaxCudaRoutes / caps.top_k);
  return {};
}

void plan_cuda(PlanData& data) {
  data.steps = {"route_resolve", "route_sort", "gate_up", "down"};
  plan_kernels(data);
  plan_segments(data);
  data.weight_bytes = static_cast<std::uint64_t>(cuda_weight_layout(data.caps).total_bytes);
  explain(data);
}

CudaGrid cuda_grid(const Caps& caps, CudaStep step, std::int64_t tokens) noexcept {
  const std::int64_t routes = tokens * caps.top_k;
  switch (step) {
    case kCudaRouteResolve:
      return {ceil_div(routes, kCudaNaiveThreads), 1};
    case kCudaRouteSort:
      return {ceil_div(caps.experts + 1, kCudaNaiveThreads), 1};
    case kCudaGateUp:
      return {ceil_div(caps.intermediate, kCudaNaiveThreads), std::min(routes, kMaxGridY)};
    case kCudaDown:
      return {ceil_div(caps.hidden, kCudaNaiveThreads), std::min(tokens, kMaxGridY)};
  }
  return {};
}

}  // namespace fourfold
