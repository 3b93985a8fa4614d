// The plan of the naive kernels: four launches, one band for every token count.
#pragma once

#include "plan/cuda_plan.h"

namespace fourfold {

/// Threads of a block of every naive kernel; kernels/params/moe_params.h has the same number.
inline constexpr int kCudaNaiveThreads = 128;

/// The steps of a naive run, in order: indices into Plan::steps, PlanData::kernel_specs and the launches of its band.
enum CudaNaiveStep : int { kCudaRouteResolve, kCudaRouteSort, kCudaGateUp, kCudaDown };

/// plan_cuda for the naive family. Pure.
void plan_cuda_naive(PlanData& data);

/// The grid of a naive launch. Pure.
CudaGrid cuda_naive_grid(const Caps& caps, CudaKernel kernel, std::int64_t tokens) noexcept;

}  // namespace fourfold
