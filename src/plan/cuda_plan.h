// How an NVIDIA GPU serves a problem: bands, kernel instances, steps, grids and the workspace ledger.
#pragma once

#include <string>

#include "fourfold/plan.h"
#include "plan/plan_data.h"

namespace fourfold {

/// Routes (tokens x top_k) of one call: route ids are 32 bits wide on a GPU.
inline constexpr std::int64_t kMaxCudaRoutes = (std::int64_t{1} << 31) - 1;
/// Threads of a block of every naive kernel; kernels/params/moe_params.h has the same number.
inline constexpr int kCudaNaiveThreads = 128;

/// The steps of a CUDA run, in order: indices into Plan::steps and into PlanData::kernel_specs. One launch each.
enum CudaStep : int { kCudaRouteResolve, kCudaRouteSort, kCudaGateUp, kCudaDown };

/// Blocks of a launch; z is always 1.
struct CudaGrid {
  std::int64_t x = 1;  ///< at most 2^31 - 1
  std::int64_t y = 1;  ///< at most 65535
  bool operator==(const CudaGrid&) const = default;
};

/// Empty when a CUDA device can serve the caps, else the first broken rule in words. The caps have passed
/// caps_refusal. Never throws. Pure.
std::string cuda_refusal(const Caps& caps, const Device& device);

/// Fills bands, kernel_specs, steps, segments, declined, notes, workspace_bytes, weight_bytes and cuda of `data` from
/// data.caps and data.device. cuda_refusal is empty for them. Throws unsupported when a size leaves 63 bits. Pure.
void plan_cuda(PlanData& data);

/// The grid of a step's launch at `tokens` live tokens, 1 .. caps.max_tokens. It depends on caps and tokens only, so a
/// captured launch serves any routing. Pure.
CudaGrid cuda_grid(const Caps& caps, CudaStep step, std::int64_t tokens) noexcept;

}  // namespace fourfold
