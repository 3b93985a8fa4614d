// A layer in units, one expert at a time: each expert's units are one piece, its global scales and biases others.
#include <array>
#include <cstring>

#include "cuda/pack_experts.h"
#include "cuda/pack_loop.h"
#include "cuda/pack_units.h"

namespace fourfold::cuda {
namespace {

/// Puts one expert's projection together in `expert`, the layout of a layer of one expert.
void put_projection(const Caps& caps, const CudaUnitMatrix& one, std::span<const MatrixSource> parts,
                    std::span<std::byte> expert) {
  const bool permute = caps.format.format != WeightFormat::int4 && caps.activation_dtype == DType::bf16;
  pack_units(caps.format, one, permute, parts,
             expert.subspan(static_cast<std::size_t>(one.units), static_cast<std::size_t>(one.expert_bytes())));
  const std::int64_t rows = one.rows / static_cast<std::int64_t>(parts.size());
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (one.global >= 0) std::memcpy(expert.data() + one.global + 4 * part, &parts[part].global_scale, 4);
    if (one.bias >= 0)
      put_bias(expert.data() + one.bias + static_cast<std::int64_t>(part) * rows * 4, rows, parts[part]);
  }
}

void write_projection(const PackTarget& target, std::span<const std::byte> expert, const CudaUnitMatrix& one,
                      const CudaUnitMatrix& all, std::int64_t index) {
  const auto write = [&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
    write_section(target, expert, from, to, index, bytes);
  };
  write(one.units, all.units, all.expert_bytes());
  write(one.global, all.global, all.parts * 4);
  write(one.bias, all.bias, all.rows * 4);
}

}  // namespace

UnitLayer pack_unit_layer(const Caps& caps, ExpertSource& source, const PackTarget& target) {
  const bool gated = caps.activation.gated();
  return pack_each<UnitLayer>(
      caps, source, target, cuda_unit_layout,
      [&](const ExpertMatrices& matrices, const CudaUnitLayout& one, std::span<std::byte> expert) {
        const std::array<MatrixSource, 2> gate_up{gated ? matrices.gate : matrices.up, matrices.up};
        put_projection(caps, one.gate_up, std::span(gate_up).first(gated ? 2 : 1), expert);
        put_projection(caps, one.down, std::span(&matrices.down, 1), expert);
      },
      [&](std::span<const std::byte> expert, const CudaUnitMatrix& one, const CudaUnitMatrix& all, std::int64_t index) {
        write_projection(target, expert, one, all, index);
      });
}

kernels::UnitMatrix unit_params(const CudaUnitMatrix& layout, kernels::ScaleType scales, const std::byte* base) {
  const auto at = [&](std::int64_t offset) { return offset < 0 ? nullptr : base + offset; };
  kernels::UnitMatrix params{};
  params.units = reinterpret_cast<const kernels::UInt8*>(at(layout.units));
  params.global = reinterpret_cast<const float*>(at(layout.global));
  params.bias = reinterpret_cast<const float*>(at(layout.bias));
  params.expert_bytes = layout.expert_bytes();
  params.bias_expert_floats = layout.rows;
  params.global_expert_floats = static_cast<kernels::Int32>(layout.parts);
  params.row_tiles = static_cast<kernels::Int32>(layout.row_tiles);
  params.depth_blocks = static_cast<kernels::Int32>(layout.depth_blocks);
  params.unit_bytes = static_cast<kernels::Int32>(layout.unit_bytes);
  params.scale_span = static_cast<kernels::Int32>(layout.scale_span);
  params.scale_type = static_cast<kernels::Int32>(scales);
  return params;
}

}  // namespace fourfold::cuda
