// Stacks the rows of every expert, tensor by tensor: an expert's rows are contiguous in every section.
#include "cuda/pack_experts.h"

#include <cstring>

#include "core/check.h"
#include "core/float16.h"
#include "cuda/pack_loop.h"
#include "plan/problem.h"

namespace fourfold::cuda {
namespace {

void copy_rows(std::byte* target, std::int64_t row_bytes, std::int64_t rows, const void* source, std::int64_t stride) {
  const auto* from = static_cast<const std::byte*>(source);
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(target + row * row_bytes, from + row * stride, static_cast<std::size_t>(row_bytes));
}

/// Puts `rows` rows of one matrix into an expert's sections, from row `first_row` of the projection on.
void put_matrix(std::byte* expert, const CudaMatrixLayout& layout, std::int64_t first_row, std::int64_t rows,
                std::int64_t part, const MatrixSource& source) {
  const std::int64_t codes = layout.codes_row_bytes(), scales = layout.scales_row_bytes(), zeros = layout.groups;
  copy_rows(expert + layout.codes + first_row * codes, codes, rows, source.codes, source.codes_row_bytes);
  copy_rows(expert + layout.scales + first_row * scales, scales, rows, source.scales, source.scales_row_bytes);
  if (layout.zeros >= 0)
    copy_rows(expert + layout.zeros + first_row * zeros, zeros, rows, source.zeros, source.zeros_row_bytes);
  if (layout.global >= 0) std::memcpy(expert + layout.global + part * 4, &source.global_scale, 4);
  if (layout.bias >= 0) put_bias(expert + layout.bias + first_row * 4, rows, source);
}

/// Sends an expert's sections of one projection to their places in the layer.
void write_matrix(const PackTarget& target, std::span<const std::byte> expert, const CudaMatrixLayout& one,
                  const CudaMatrixLayout& all, std::int64_t index) {
  const auto write = [&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
    write_section(target, expert, from, to, index, bytes);
  };
  write(one.codes, all.codes, all.rows * all.codes_row_bytes());
  write(one.scales, all.scales, all.rows * all.scales_row_bytes());
  write(one.zeros, all.zeros, all.rows * all.groups);
  write(one.global, all.global, all.parts * 4);
  write(one.bias, all.bias, all.rows * 4);
}

/// `expected` is that of the `first` scales of expert 0.
void check_scale_dtype(const char* name, std::int64_t index, DType got, const char* first, DType expected) {
  check(
      got == expected, ErrorCode::bad_input,
      "prepare_weights: the {} scales of expert {} are {}, the {} scales of expert 0 are {}; a GPU keeps one dtype per "
      "projection, so convert them to F32",
      name, index, dtype_text(got), first, dtype_text(expected));
}

}  // namespace

kernels::ScaleType scale_type(DType dtype) noexcept {
  if (dtype == DType::f32) return kernels::ScaleType::f32;
  return dtype == DType::f16 ? kernels::ScaleType::f16 : kernels::ScaleType::bf16;
}

float bias_value(const std::byte* data, DType dtype) noexcept {
  std::uint16_t half = 0;
  float single = 0;
  if (dtype == DType::f32) {
    std::memcpy(&single, data, sizeof single);
    return single;
  }
  std::memcpy(&half, data, sizeof half);
  return dtype == DType::f16 ? f16_to_float(half) : bf16_to_float(half);
}

void LayerScales::observe(const Caps& caps, std::int64_t index, const ExpertMatrices& matrices) {
  if (index == 0) {
    gate_up = matrices.up.scale_dtype;
    down = matrices.down.scale_dtype;
  }
  if (caps.format.format != WeightFormat::int4) return;
  if (caps.activation.gated()) check_scale_dtype("gate", index, matrices.gate.scale_dtype, "up", gate_up);
  check_scale_dtype("up", index, matrices.up.scale_dtype, "up", gate_up);
  check_scale_dtype("down", index, matrices.down.scale_dtype, "down", down);
}

void put_bias(std::byte* to, std::int64_t rows, const MatrixSource& source) noexcept {
  const auto* bias = static_cast<const std::byte*>(source.bias);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float value = bias_value(bias + row * source.bias_stride_bytes, source.bias_dtype);
    std::memcpy(to + row * 4, &value, 4);
  }
}

void write_section(const PackTarget& target, std::span<const std::byte> expert, std::int64_t from, std::int64_t to,
                   std::int64_t index, std::int64_t bytes) {
  if (from < 0) return;
  target.write(static_cast<std::uint64_t>(to + index * bytes),
               expert.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(bytes)));
}

PackedLayer pack_layer(const Caps& caps, ExpertSource& source, const PackTarget& target) {
  const bool gated = caps.activation.gated();
  return pack_each<PackedLayer>(
      caps, source, target, cuda_weight_layout,
      [&](const ExpertMatrices& matrices, const CudaWeightLayout& one, std::span<std::byte> expert) {
        if (gated) put_matrix(expert.data(), one.gate_up, 0, caps.intermediate, 0, matrices.gate);
        put_matrix(expert.data(), one.gate_up, gated ? caps.intermediate : 0, caps.intermediate, gated ? 1 : 0,
                   matrices.up);
        put_matrix(expert.data(), one.down, 0, caps.hidden, 0, matrices.down);
      },
      [&](std::span<const std::byte> expert, const CudaMatrixLayout& one, const CudaMatrixLayout& all,
          std::int64_t index) { write_matrix(target, expert, one, all, index); });
}

kernels::MatrixParams matrix_params(const CudaMatrixLayout& layout, kernels::ScaleType scales, const std::byte* base) {
  const auto at = [&](std::int64_t offset) { return offset < 0 ? nullptr : base + offset; };
  kernels::MatrixParams params{};
  params.codes = reinterpret_cast<const kernels::UInt8*>(at(layout.codes));
  params.scales = at(layout.scales);
  params.zeros = reinterpret_cast<const kernels::UInt8*>(at(layout.zeros));
  params.global = reinterpret_cast<const float*>(at(layout.global));
  params.bias = reinterpret_cast<const float*>(at(layout.bias));
  params.codes_row_bytes = layout.codes_row_bytes();
  params.codes_expert_bytes = layout.rows * params.codes_row_bytes;
  params.scales_row_bytes = layout.scales_row_bytes();
  params.scales_expert_bytes = layout.rows * params.scales_row_bytes;
  params.zeros_row_bytes = layout.groups;
  params.zeros_expert_bytes = layout.rows * layout.groups;
  params.global_expert_floats = layout.parts;
  params.bias_expert_floats = layout.rows;
  params.reduction = static_cast<kernels::Int32>(layout.k);
  params.group_size = static_cast<kernels::Int32>(layout.group_size);
  params.scale_type = scales;
  return params;
}

void CudaExperts::set_layer(const PackedLayer& layer, const std::byte* base) {
  gate_up_ = matrix_params(layer.layout.gate_up, layer.gate_up_scales, base);
  down_ = matrix_params(layer.layout.down, layer.down_scales, base);
  bytes_ = static_cast<std::uint64_t>(layer.layout.total_bytes);
  family_ = CudaFamily::naive;
}

void CudaExperts::set_layer(const UnitLayer& layer, const std::byte* base) {
  gate_up_units_ = unit_params(layer.layout.gate_up, layer.gate_up_scales, base);
  down_units_ = unit_params(layer.layout.down, layer.down_scales, base);
  bytes_ = static_cast<std::uint64_t>(layer.layout.total_bytes);
  family_ = CudaFamily::tiles;
}

}  // namespace fourfold::cuda
