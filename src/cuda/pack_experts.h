// From a layer's source matrices to the GPU's weight layout (src/plan/cuda_weight_layout.h), one expert at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backend/backend_interface.h"
#include "kernels/params/moe_params.h"
#include "kernels/params/tile_params.h"
#include "plan/cuda_unit_layout.h"
#include "plan/cuda_weight_layout.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {

/// Where a layer lies, and in which dtype its int4 scales are.
struct PackedLayer {
  CudaWeightLayout layout;
  kernels::ScaleType gate_up_scales = kernels::ScaleType::bf16;
  kernels::ScaleType down_scales = kernels::ScaleType::bf16;
};

/// The same for the tensor-core kernels.
struct UnitLayer {
  CudaUnitLayout layout;
  kernels::ScaleType gate_up_scales = kernels::ScaleType::bf16;
  kernels::ScaleType down_scales = kernels::ScaleType::bf16;
};

/// Who owns the bytes while they are packed.
struct PackTarget {
  /// Called once, before anything is written: makes room for `layer_bytes`, and returns host memory of `expert_bytes`
  /// in which one expert is put together.
  std::function<std::span<std::byte>(std::uint64_t layer_bytes, std::uint64_t expert_bytes)> begin;
  /// Copies a piece of that host memory to `offset` of the layer. It may be enqueued: the bytes stay until expert_done.
  std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)> write;
  /// The host memory is about to be written again.
  std::function<void()> expert_done;
};

/// Packs experts 0 .. caps.experts - 1 of `source`, whose matrices have been checked (moe/stacked_source.h). Every byte
/// of every section is written, those between sections are not. Throws bad_input when int4 scales of one projection
/// come in two dtypes; what source and target throw goes to the caller.
PackedLayer pack_layer(const Caps& caps, ExpertSource& source, const PackTarget& target);

/// The same in units (src/plan/cuda_unit_layout.h), in the code order of caps.activation_dtype.
UnitLayer pack_unit_layer(const Caps& caps, ExpertSource& source, const PackTarget& target);

/// Dtypes of a layer's int4 scales, one per projection; other formats have one dtype anyway.
struct LayerScales {
  DType gate_up = DType::bf16, down = DType::bf16;
  /// Takes those of expert 0, and throws bad_input when a later expert's differ.
  void observe(const Caps& caps, std::int64_t index, const ExpertMatrices& matrices);
};
kernels::ScaleType scale_type(DType dtype) noexcept;
/// A bias entry as fp32. `data` needs no alignment.
float bias_value(const std::byte* data, DType dtype) noexcept;

/// The arguments of one projection whose layer lies at `base`, a device address.
kernels::MatrixParams matrix_params(const CudaMatrixLayout& layout, kernels::ScaleType scales, const std::byte* base);
kernels::UnitMatrix unit_params(const CudaUnitMatrix& layout, kernels::ScaleType scales, const std::byte* base);

/// A packed layer that kernels can read: two projections, base pointers included. What owns the memory derives from it.
class CudaExperts : public PackedExperts {
 public:
  CudaFamily family() const noexcept { return family_; }
  // Of the naive family.
  const kernels::MatrixParams& gate_up() const noexcept { return gate_up_; }
  const kernels::MatrixParams& down() const noexcept { return down_; }
  // Of the tile family.
  const kernels::UnitMatrix& gate_up_units() const noexcept { return gate_up_units_; }
  const kernels::UnitMatrix& down_units() const noexcept { return down_units_; }
  std::uint64_t bytes() const noexcept override { return bytes_; }

 protected:
  explicit CudaExperts(const Caps& caps) : PackedExperts(caps) {}
  void set_layer(const PackedLayer& layer, const std::byte* base);
  void set_layer(const UnitLayer& layer, const std::byte* base);

 private:
  CudaFamily family_ = CudaFamily::naive;
  kernels::MatrixParams gate_up_{}, down_{};
  kernels::UnitMatrix gate_up_units_{}, down_units_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace fourfold::cuda
