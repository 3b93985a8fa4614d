// The plan of the tensor-core kernels: which instances serve which token counts, their launches, and the ledger.
// docs/design_tensor_kernels.md derives the structure.
#pragma once

#include <string>
#include <vector>

#include "plan/cuda_plan.h"

namespace fourfold {

/// Token tiles of a call at most: each of the experts hit has one, and every full tile of routes beyond its first route
/// may add one. Pure.
std::int64_t max_token_tiles(std::int64_t routes, std::int64_t experts, std::int64_t token_tile) noexcept;

/// Empty when the device's shared memory holds some instance of every kernel, else why not. Pure.
std::string cuda_tiles_refusal(const Caps& caps, const Device& device);

/// Every instance that a plan of this format and activation dtype may launch on the device, whatever the sizes; shared
/// memory is the device's. Pure.
std::vector<KernelSpec> cuda_tile_kernels(const Caps& caps, const Device& device);

/// plan_cuda for the tile family. Pure.
void plan_cuda_tiles(PlanData& data);

}  // namespace fourfold
