// Where everything of a layer lies in the weights of the tensor-core kernels: one allocation, experts stacked.
//   units   per projection [experts][row tiles][depth blocks] units of codes, scales and zero points
//   global  f32 [experts][parts], nvfp4; parts are gate and up, or one
//   bias    f32 [experts][rows], gate rows, then up rows
// docs/design_tensor_kernels.md describes a unit; kernels/params/tile_params.h has its constants. Sections start at
// multiples of 256.
#pragma once

#include <cstdint>

#include "fourfold/plan.h"
#include "plan/cuda_weight_layout.h"

namespace fourfold {

// Of a unit: 16 rows by 64 reduction positions. tile_params.h has the same numbers.
inline constexpr std::int64_t kCudaUnitRows = 16;
inline constexpr std::int64_t kCudaUnitDepth = 64;
inline constexpr std::int64_t kCudaUnitCodeBytes = kCudaUnitRows * kCudaUnitDepth / 2;

/// One projection of all experts. Offsets from the start of the allocation, -1 for a section that does not exist.
struct CudaUnitMatrix {
  std::int64_t rows = 0, k = 0, parts = 1;
  bool gated = false;             ///< a row tile is 8 gate rows and the 8 up rows that belong to them
  std::int64_t row_tiles = 0;     ///< ceil(rows / 16)
  std::int64_t depth_blocks = 0;  ///< ceil(k / 64)
  std::int64_t scale_span = 0;    ///< positions of one stored scale: 16, 32 or 64
  std::int64_t scale_bytes = 1;   ///< of one scale
  std::int64_t unit_bytes = 0;
  std::int64_t units = -1, global = -1, bias = -1;
  std::int64_t spans() const noexcept { return kCudaUnitDepth / scale_span; }
  std::int64_t expert_bytes() const noexcept { return row_tiles * depth_blocks * unit_bytes; }
};

struct CudaUnitLayout {
  CudaUnitMatrix gate_up, down;
  std::int64_t total_bytes = 0;  ///< multiple of 256
};

/// Throws unsupported when a size leaves 63 bits. Pure.
CudaUnitLayout cuda_unit_layout(const Caps& caps, const CudaScaleBytes& int4_scale_bytes = {});

}  // namespace fourfold
