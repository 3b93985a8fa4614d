// Offsets of the CPU's packed weights, from the caps alone: planning prices what packing will allocate.
#include "plan/cpu_weight_layout.h"

#include "core/check.h"

namespace fourfold {
namespace {

constexpr std::int64_t kTileRows = cpu::kCallPanels * cpu::kPanelRows;
static_assert(kTileRows % 64 == 0, "every part of a record must start at a cache line");

CpuMatrixLayout matrix_layout(const Caps& caps, int parts, std::int64_t rows, std::int64_t k,
                              std::int64_t scale_bytes) {
  CpuMatrixLayout layout;
  layout.parts = parts;
  layout.rows = rows;
  layout.k = k;
  layout.panels = ceil_div(rows, cpu::kPanelRows);
  layout.tiles = ceil_div(layout.panels, layout.part_panels());
  layout.steps = ceil_div(k, cpu::kStepColumns);
  layout.groups = groups_per_row(caps.format, k);
  layout.group_steps = layout.groups == 1 ? layout.steps : caps.format.group_size / cpu::kStepColumns;
  layout.header_bytes = kTileRows * (scale_bytes + (caps.format.zero_points ? 1 : 0));
  layout.record_bytes = checked_add(
      checked_mul(layout.group_steps, cpu::kTileStepBytes, "packed codes"), layout.header_bytes, "packed codes");
  layout.tile_bytes = checked_add(checked_mul(layout.steps, cpu::kTileStepBytes, "packed codes"),
                                  checked_mul(layout.groups, layout.header_bytes, "packed scales"), "packed weights");
  return layout;
}

}  // namespace

CpuWeightLayout cpu_weight_layout(const Caps& caps) {
  CpuWeightLayout layout;
  layout.scale_bytes = caps.format.format == WeightFormat::int4 ? 2 : 1;
  layout.gate_up =
      matrix_layout(caps, caps.activation.gated() ? 2 : 1, caps.intermediate, caps.hidden, layout.scale_bytes);
  layout.down = matrix_layout(caps, 1, caps.hidden, caps.intermediate, layout.scale_bytes);
  const auto add = [&](std::int64_t bytes) {
    const std::int64_t begin = layout.expert_bytes;
    layout.expert_bytes = checked_add(begin, bytes, "packed weights");
    return begin;
  };
  CpuMatrixLayout* const matrices[] = {&layout.gate_up, &layout.down};
  for (CpuMatrixLayout* const m : matrices) m->data = add(checked_mul(m->tiles, m->tile_bytes, "packed weights"));
  if (caps.gate_up_bias) layout.gate_up.bias = add(layout.gate_up.tiles * kTileRows * 4);
  if (caps.down_bias) layout.down.bias = add(layout.down.tiles * kTileRows * 4);
  layout.total_bytes = checked_mul(caps.experts, layout.expert_bytes, "packed weights of all experts");
  return layout;
}

}  // namespace fourfold
