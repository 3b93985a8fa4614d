// Offsets of the tensor-core kernels' weights, from the caps alone: planning prices what packing will allocate.
#include "plan/cuda_unit_layout.h"

#include <numeric>

#include "core/check.h"
#include "plan/packed_sections.h"

namespace fourfold {
namespace {

/// Positions that share a stored scale. A group that is no divisor of a unit's depth is stored once per common part.
std::int64_t scale_span(const FormatSpec& format) {
  if (format.group_size == 0) return kCudaUnitDepth;
  return std::gcd(format.group_size, kCudaUnitDepth);
}

CudaUnitMatrix unit_matrix(const Caps& caps, std::int64_t rows, std::int64_t k, std::int64_t int4_scale_bytes) {
  CudaUnitMatrix matrix;
  matrix.rows = rows;
  matrix.k = k;
  matrix.row_tiles = ceil_div(rows, kCudaUnitRows);
  matrix.depth_blocks = ceil_div(k, kCudaUnitDepth);
  matrix.scale_span = scale_span(caps.format);
  matrix.scale_bytes = caps.format.format == WeightFormat::int4 ? int4_scale_bytes : 1;
  const std::int64_t scales = kCudaUnitRows * matrix.spans();
  matrix.unit_bytes = kCudaUnitCodeBytes + scales * (matrix.scale_bytes + (caps.format.zero_points ? 1 : 0));
  return matrix;
}

void add_sections(const Caps& caps, bool bias, CudaUnitMatrix& matrix, PackedSections& section) {
  const std::int64_t units = checked_mul(checked_mul(caps.experts, matrix.row_tiles, "row tiles of all experts"),
                                         matrix.depth_blocks, "units");
  matrix.units = section.add(checked_mul(units, matrix.unit_bytes, "packed units"));
  if (caps.format.format == WeightFormat::nvfp4) matrix.global = section.add(caps.experts * matrix.parts * 4);
  if (bias)
    matrix.bias = section.add(
        checked_mul(checked_mul(caps.experts, matrix.rows, "rows of all experts"), 4, "packed biases"));
}

}  // namespace

CudaUnitLayout cuda_unit_layout(const Caps& caps, const CudaScaleBytes& int4_scale_bytes) {
  CudaUnitLayout layout;
  layout.gate_up = unit_matrix(caps, caps.gate_up_rows(), caps.hidden, int4_scale_bytes.gate_up);
  layout.gate_up.gated = caps.activation.gated();
  layout.gate_up.parts = layout.gate_up.gated ? 2 : 1;
  layout.down = unit_matrix(caps, caps.hidden, caps.intermediate, int4_scale_bytes.down);
  PackedSections section;
  add_sections(caps, caps.gate_up_bias, layout.gate_up, section);
  add_sections(caps, caps.down_bias, layout.down, section);
  layout.total_bytes = section.end;
  return layout;
}

}  // namespace fourfold
