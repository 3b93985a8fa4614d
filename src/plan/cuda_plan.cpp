// What every CUDA plan has in common; the two families of kernels plan themselves.
#include "plan/cuda_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "fourfold/kernels.h"
#include "plan/cuda_naive_plan.h"
#include "plan/cuda_tile_plan.h"

namespace fourfold {

std::vector<std::string> kernel_architectures() { return {"sm_80", "sm_90a", "sm_100a", "sm_120a"}; }

std::int64_t kernel_launches(const Plan& plan, std::int64_t tokens) {
  const std::ptrdiff_t band = &plan.band_for(tokens) - plan.bands().data();
  const std::vector<CudaBand>& bands = plan.data()->cuda_bands;
  return bands.empty() ? 0 : static_cast<std::int64_t>(bands[static_cast<std::size_t>(band)].launches.size());
}

std::string cuda_format_macro(const FormatSpec& format) {
  return fmt::format("{}{}", weight_format_name(format.format), format.zero_points ? "_zp" : "");
}

std::string_view cuda_dtype_macro(DType dtype) noexcept { return dtype == DType::f16 ? "f16" : "bf16"; }

std::string cuda_refusal(const Caps& caps, const Device& device) {
  if (caps.activation_dtype == DType::f32)
    return fmt::format("activation_dtype = F32 runs on a CPU only, not on device \"{}\" ({}); use BF16", device.name,
                       device.arch);
  const std::vector<std::string> architectures = kernel_architectures();
  if (std::find(architectures.begin(), architectures.end(), device.arch) == architectures.end())
    return fmt::format(
        "device.arch = \"{}\" (device \"{}\"): there are kernels for {}; use one of these devices or \"cpu\"",
        device.arch, device.name, fmt::join(architectures, ", "));
  if (caps.max_tokens > kMaxCudaRoutes / caps.top_k)
    return fmt::format(
        "max_tokens = {} at top_k = {}: a CUDA device serves at most {} routes (max_tokens x top_k) a call; use {}",
        caps.max_tokens, caps.top_k, kMaxCudaRoutes, kMaxCudaRoutes / caps.top_k);
  return device.naive_kernels ? std::string() : cuda_tiles_refusal(caps, device);
}

void plan_cuda(PlanData& data) {
  data.cuda_family = data.device.naive_kernels ? CudaFamily::naive : CudaFamily::tiles;
  if (data.cuda_family == CudaFamily::naive)
    plan_cuda_naive(data);
  else
    plan_cuda_tiles(data);
  data.notes.push_back("subnormals: none is flushed, in activations, weights, scales or sums");
  if (data.caps.format.format == WeightFormat::int4)
    data.notes.push_back(
        "int4 scales: kept in the dtype they come in, priced here as 16 bits (bf16 or f16); fp32 scales add to the "
        "weight bytes");
}

CudaGrid cuda_grid(const Caps& caps, const CudaLaunch& launch, std::int64_t tokens) noexcept {
  constexpr std::int64_t kCombineTokens = 1;  // of a block at a time
  switch (launch.kernel) {
    case CudaKernel::route_resolve:
    case CudaKernel::route_sort:
    case CudaKernel::gate_up_naive:
    case CudaKernel::down_naive:
      return cuda_naive_grid(caps, launch.kernel, tokens);
    case CudaKernel::route_tiles:
      return {1, 1};
    case CudaKernel::gate_up_tiles:
    case CudaKernel::down_rows:
      return {launch.max_blocks, 1};
    case CudaKernel::down_sums:
      return {std::min(launch.max_blocks, ceil_div(caps.hidden, std::int64_t{16} * launch.row_tiles)), 1};
    case CudaKernel::combine_rows:
      return {std::min(launch.max_blocks, ceil_div(tokens, kCombineTokens)), 1};
  }
  return {};
}

}  // namespace fourfold
