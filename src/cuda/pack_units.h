// From source matrices to units, the order in which tensor cores take weights (docs/design_tensor_kernels.md).
#pragma once

#include <cstddef>
#include <span>

#include "fourfold/weights.h"
#include "plan/cuda_unit_layout.h"

namespace fourfold::cuda {

/// Packs one expert's projection: units [row_tiles][depth_blocks] into `units`, matrix.expert_bytes() bytes, every byte
/// written; rows and positions that pad get zero codes and zero scales. `parts` are gate and up when matrix.gated, else
/// one matrix; they were checked (moe/stacked_source.h). `permute`: E2M1 codes in the bit order of bf16 kernels.
/// Uses all OpenMP threads; the result does not depend on their number.
void pack_units(const FormatSpec& format, const CudaUnitMatrix& matrix, bool permute,
                std::span<const MatrixSource> parts, std::span<std::byte> units);

}  // namespace fourfold::cuda
