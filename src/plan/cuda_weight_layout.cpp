// Offsets of the GPU's packed weights, from the caps alone: planning prices what packing will allocate.
#include "plan/cuda_weight_layout.h"

#include "core/check.h"
#include "plan/packed_sections.h"

namespace fourfold {
namespace {

void add_sections(const Caps& caps, bool bias, CudaMatrixLayout& layout, PackedSections& section) {
  const std::int64_t rows = checked_mul(caps.experts, layout.rows, "rows of all experts");
  const std::int64_t scales = checked_mul(rows, layout.groups, "packed scales");
  layout.codes = section.add(checked_mul(rows, layout.codes_row_bytes(), "packed codes"));
  layout.scales = section.add(checked_mul(scales, layout.scale_bytes, "packed scales"));
  if (caps.format.zero_points) layout.zeros = section.add(scales);
  if (caps.format.format == WeightFormat::nvfp4) layout.global = section.add(caps.experts * layout.parts * 4);
  if (bias) layout.bias = section.add(checked_mul(rows, 4, "packed biases"));
}

}  // namespace

CudaWeightLayout cuda_weight_layout(const Caps& caps, const CudaScaleBytes& int4_scale_bytes) {
  const bool int4 = caps.format.format == WeightFormat::int4;
  const auto matrix = [&](std::int64_t rows, std::int64_t k, std::int64_t scale_bytes) {
    CudaMatrixLayout layout;
    layout.rows = rows;
    layout.k = k;
    layout.groups = groups_per_row(caps.format, k);
    layout.group_size = caps.format.group_size == 0 ? k : caps.format.group_size;
    layout.scale_bytes = int4 ? scale_bytes : 1;
    return layout;
  };
  CudaWeightLayout layout;
  layout.gate_up = matrix(caps.gate_up_rows(), caps.hidden, int4_scale_bytes.gate_up);
  layout.gate_up.parts = caps.activation.gated() ? 2 : 1;
  layout.down = matrix(caps.hidden, caps.intermediate, int4_scale_bytes.down);
  PackedSections section;
  add_sections(caps, caps.gate_up_bias, layout.gate_up, section);
  add_sections(caps, caps.down_bias, layout.down, section);
  layout.total_bytes = section.end;
  return layout;
}

}  // namespace fourfold
