// How a GPU serves a problem with the naive kernels.
#include "plan/cuda_naive_plan.h"

#include <algorithm>

#include "core/check.h"
#include "plan/arena.h"
#include "plan/cuda_weight_layout.h"

namespace fourfold {
namespace {

// A multiprocessor of 65536 registers holds eight blocks of 128 threads: kNaiveBlocks of kernels/params/moe_params.h.
constexpr int kNaiveRegisters = 64;
// CUDA C++ Programming Guide, "Technical specifications per compute capability": largest y of a grid.
constexpr std::int64_t kMaxGridY = 65535;

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
  const std::string format = cuda_format_macro(caps.format), dtype(cuda_dtype_macro(caps.activation_dtype));
  const std::string activation(activation_name(caps.activation.kind));
  data.kernel_specs.push_back(naive_kernel("moe/route_resolve.cu", {}));
  data.kernel_specs.push_back(naive_kernel("moe/route_sort.cu", {}));
  data.kernel_specs.push_back(
      naive_kernel("moe/gate_up_naive.cu", {{"ACTIVATION", activation}, {"DTYPE", dtype}, {"FORMAT", format}}));
  data.kernel_specs.push_back(naive_kernel("moe/down_naive.cu", {{"DTYPE", dtype}, {"FORMAT", format}}));
  Band band{1, caps.max_tokens, {}, 1, kCudaNaiveThreads};
  for (const KernelSpec& spec : data.kernel_specs) band.kernels.push_back(spec.name());
  data.bands.push_back(std::move(band));
  CudaBand launches;
  int spec = 0;
  for (const CudaKernel kernel :
       {CudaKernel::route_resolve, CudaKernel::route_sort, CudaKernel::gate_up_naive, CudaKernel::down_naive}) {
    CudaLaunch launch;
    launch.kernel = kernel;
    launch.spec = spec++;
    launches.launches.push_back(launch);
  }
  data.cuda_bands.push_back(std::move(launches));
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

}  // namespace

void plan_cuda_naive(PlanData& data) {
  data.steps = {"route_resolve", "route_sort", "gate_up", "down"};
  plan_kernels(data);
  plan_segments(data);
  data.weight_bytes = static_cast<std::uint64_t>(cuda_weight_layout(data.caps).total_bytes);
  data.notes.push_back(
      "batch_invariant: always so and free of cost; one band, and every output element is one thread's sum in a fixed "
      "order");
  data.notes.push_back("kernels: the naive ones, one thread an output element; every weight is read once per route");
}

CudaGrid cuda_naive_grid(const Caps& caps, CudaKernel kernel, std::int64_t tokens) noexcept {
  const std::int64_t routes = tokens * caps.top_k;
  switch (kernel) {
    case CudaKernel::route_resolve:
      return {ceil_div(routes, kCudaNaiveThreads), 1};
    case CudaKernel::route_sort:
      return {ceil_div(caps.experts + 1, kCudaNaiveThreads), 1};
    case CudaKernel::gate_up_naive:
      return {ceil_div(caps.intermediate, kCudaNaiveThreads), std::min(routes, kMaxGridY)};
    default:
      return {ceil_div(caps.hidden, kCudaNaiveThreads), std::min(tokens, kMaxGridY)};
  }
}

}  // namespace fourfold
