// Tile shapes that somebody wants instead of the planner's own: for measurements that fill the table.
#pragma once

#include <optional>

#include "fourfold/plan.h"
#include "plan/cuda_tile_table.h"

namespace fourfold {

/// What is empty stays the planner's choice; a shape of other token steps than the band's brings the other projection
/// along.
struct CudaTileChoice {
  std::optional<CudaTileShape> gate_up, down;
  std::optional<bool> sums;  ///< with `down`: sums in shared memory, or panels of rows
};

/// plan(caps, device) with forced shapes in every band. Throws unsupported as plan does, and when the device's shared
/// memory, or the other forced shape, does not go with a shape. Pure.
Plan plan_with_tiles(const Caps& caps, const Device& device, const CudaTileChoice& choice);

}  // namespace fourfold
