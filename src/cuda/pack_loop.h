// Packing a layer expert by expert, the same for both weight layouts: an expert is put together in the layout of a
// layer of one expert, and each of its sections goes to its place in the layer in one copy.
#pragma once

#include <cstdint>
#include <span>

#include "core/check.h"
#include "cuda/pack_experts.h"

namespace fourfold::cuda {

/// `rows` bias entries of `source` as fp32, to `to` (f32 [rows], any alignment).
void put_bias(std::byte* to, std::int64_t rows, const MatrixSource& source) noexcept;

/// Sends a section of `bytes` bytes an expert, at `from` in `expert`, to expert `index`'s place in the layer's section
/// at `to`. Nothing for a section that does not exist (`from` is -1). Throws what target.write throws.
void write_section(const PackTarget& target, std::span<const std::byte> expert, std::int64_t from, std::int64_t to,
                   std::int64_t index, std::int64_t bytes);

/// Packs experts 0 .. caps.experts - 1. `Layer` has layout, gate_up_scales and down_scales.
///   layout_of(caps, CudaScaleBytes)          the layout of a layer
///   put(matrices, one, expert)               one expert's sections, in the layout `one` of a layer of one expert
///   write(expert, one projection, all, index)  sends that expert's sections of one projection to the target
/// Throws bad_input when int4 scales of one projection come in two dtypes, and what source and target throw.
template <class Layer, class LayoutOf, class Put, class Write>
Layer pack_each(const Caps& caps, ExpertSource& source, const PackTarget& target, const LayoutOf& layout_of,
                const Put& put, const Write& write) {
  Layer layer;
  decltype(layer.layout) one;
  std::span<std::byte> expert;
  LayerScales scales;
  for (std::int64_t index = 0; index < caps.experts; ++index) {
    const ExpertMatrices matrices = source.expert(index);
    scales.observe(caps, index, matrices);
    if (index == 0) {
      layer.gate_up_scales = scale_type(scales.gate_up);
      layer.down_scales = scale_type(scales.down);
      const CudaScaleBytes scale_bytes{dtype_bits(scales.gate_up) / 8, dtype_bits(scales.down) / 8};
      layer.layout = layout_of(caps, scale_bytes);
      Caps caps_of_one = caps;
      caps_of_one.experts = 1;
      one = layout_of(caps_of_one, scale_bytes);
      expert = target.begin(static_cast<std::uint64_t>(layer.layout.total_bytes),
                            static_cast<std::uint64_t>(one.total_bytes));
    }
    put(matrices, one, expert);
    write(expert, one.gate_up, layer.layout.gate_up, index);
    write(expert, one.down, layer.layout.down, index);
    target.expert_done();
  }
  return layer;
}

}  // namespace fourfold::cuda
