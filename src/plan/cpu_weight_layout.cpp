// Offsets of the CPU's packed weights, from the caps alone: planning prices what packing will allocate.
#include "plan/cpu_weight_layout.h"

#include "core/check.h"

namespace fourfold {
namespace {

constexpr std::int64_t kSectionAlignment = 64;  // a cache line, and the widest load

struct Section {
  std::int64_t end = 0;
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t begin = end;
    end = checked_add(
        end, round_up(checked_add(bytes, kSectionAlignment, "packed weights") - kSectionAlignment, kSectionAlignment),
        "packed weights");
    return begin;
  }
};

CpuMatrixLayout matrix_layout(const Caps& caps, std::int64_t rows, std::int64_t k, bool bias, std::int64_t scale_bytes,
                              Section& section) {
  CpuMatrixLayout layout;
  layout.rows = rows;
  layout.k = k;
  layout.panels = ceil_div(rows, cpu::kPanelRows);
  layout.steps = ceil_div(k, cpu::kStepColumns);
  layout.groups = groups_per_row(caps.format, k);
  layout.group_steps = layout.groups == 1 ? layout.steps : caps.format.group_size / cpu::kStepColumns;
  const std::int64_t lanes = checked_mul(layout.panels, layout.groups * cpu::kPanelRows, "packed scales");
  layout.codes = section.add(checked_mul(layout.panels, layout.steps * cpu::kStepBytes, "packed codes"));
  layout.scales = section.add(checked_mul(lanes, scale_bytes, "packed scales"));
  if (caps.format.zero_points) layout.zeros = section.add(lanes);
  if (bias) layout.bias = section.add(layout.panels * cpu::kPanelRows * 4);
  return layout;
}

}  // namespace

CpuWeightLayout cpu_weight_layout(const Caps& caps) {
  CpuWeightLayout layout;
  layout.gated = caps.activation.gated();
  layout.scale_bytes = caps.format.format == WeightFormat::int4 ? 2 : 1;
  Section section;
  const auto matrix = [&](std::int64_t rows, std::int64_t k, bool bias) {
    return matrix_layout(caps, rows, k, bias, layout.scale_bytes, section);
  };
  if (layout.gated) layout.gate = matrix(caps.intermediate, caps.hidden, caps.gate_up_bias);
  layout.up = matrix(caps.intermediate, caps.hidden, caps.gate_up_bias);
  layout.down = matrix(caps.hidden, caps.intermediate, caps.down_bias);
  layout.expert_bytes = section.end;
  layout.total_bytes = checked_mul(caps.experts, layout.expert_bytes, "packed weights of all experts");
  return layout;
}

}  // namespace fourfold
