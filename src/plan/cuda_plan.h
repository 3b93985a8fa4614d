// How an NVIDIA GPU serves a problem: bands, kernel instances, launches and the workspace ledger.
#pragma once

#include <string>
#include <string_view>

#include "fourfold/plan.h"
#include "plan/plan_data.h"

namespace fourfold {

/// Routes (tokens x top_k) of one call: route ids are 32 bits wide on a GPU.
inline constexpr std::int64_t kMaxCudaRoutes = (std::int64_t{1} << 31) - 1;

/// Empty when a CUDA device can serve the caps, else the first broken rule in words. The caps have passed
/// caps_refusal. Never throws. Pure.
std::string cuda_refusal(const Caps& caps, const Device& device);

/// Fills bands, kernel_specs, steps, segments, declined, notes, workspace_bytes, weight_bytes and the cuda members of
/// `data` from data.caps and data.device. cuda_refusal is empty for them. Throws unsupported when a size leaves 63
/// bits. Pure.
void plan_cuda(PlanData& data);

/// The grid of a launch at `tokens` live tokens, 1 .. caps.max_tokens. Pure.
CudaGrid cuda_grid(const Caps& caps, const CudaLaunch& launch, std::int64_t tokens) noexcept;

/// The value of the macro FORMAT and of DTYPE. Pure.
std::string cuda_format_macro(const FormatSpec& format);
std::string_view cuda_dtype_macro(DType dtype) noexcept;

}  // namespace fourfold
