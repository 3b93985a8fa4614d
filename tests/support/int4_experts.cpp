// Layout of StackedExperts, filled by hand.
#include "support/int4_experts.h"

#include "core/float16.h"

namespace support {

using namespace fourfold;

Int4Experts::Int4Experts(const Caps& caps, GateUpOrder order) : caps_(caps) {
  const std::int64_t experts = caps.experts, rows = caps.gate_up_rows(), hidden = caps.hidden,
                     inner = caps.intermediate;
  const std::int64_t groups_hidden = groups_per_row(caps.format, hidden),
                     groups_inner = groups_per_row(caps.format, inner);
  first_codes_.assign(experts * rows * hidden / 2, 0x88);
  down_codes_.assign(experts * hidden * inner / 2, 0x88);
  first_scales_.assign(experts * rows * groups_hidden, float_to_bf16(1));
  down_scales_.assign(experts * hidden * groups_inner, float_to_bf16(1));
  first_bias_.assign(experts * rows, 0);
  down_bias_.assign(experts * hidden, 0);
  stacked_.order = order;
  stacked_.gate_up_codes = ConstTensorView(first_codes_.data(), DType::u8, {experts, rows, hidden / 2});
  stacked_.gate_up_scales = ConstTensorView(first_scales_.data(), DType::bf16, {experts, rows, groups_hidden});
  stacked_.down_codes = ConstTensorView(down_codes_.data(), DType::u8, {experts, hidden, inner / 2});
  stacked_.down_scales = ConstTensorView(down_scales_.data(), DType::bf16, {experts, hidden, groups_inner});
  if (caps.gate_up_bias) stacked_.gate_up_bias = ConstTensorView(first_bias_.data(), DType::bf16, {experts, rows});
  if (caps.down_bias) stacked_.down_bias = ConstTensorView(down_bias_.data(), DType::bf16, {experts, hidden});
}

std::int64_t Int4Experts::fused_row(bool is_up, std::int64_t row) const {
  if (!caps_.activation.gated()) return row;
  if (stacked_.order == GateUpOrder::interleaved) return 2 * row + is_up;
  return (is_up == (stacked_.order == GateUpOrder::gate_up) ? caps_.intermediate : 0) + row;
}

void Int4Experts::set_nibble(std::vector<std::uint8_t>& codes, std::int64_t at, int value) {
  std::uint8_t& pair = codes[at / 2];
  const int code = value + 8;
  pair = static_cast<std::uint8_t>(at % 2 ? (pair & 0x0f) | code << 4 : (pair & 0xf0) | code);
}

void Int4Experts::gate(std::int64_t expert, std::int64_t row, std::int64_t column, int value) {
  set_nibble(first_codes_, (expert * caps_.gate_up_rows() + fused_row(false, row)) * caps_.hidden + column, value);
}
void Int4Experts::up(std::int64_t expert, std::int64_t row, std::int64_t column, int value) {
  set_nibble(first_codes_, (expert * caps_.gate_up_rows() + fused_row(true, row)) * caps_.hidden + column, value);
}
void Int4Experts::down(std::int64_t expert, std::int64_t row, std::int64_t column, int value) {
  set_nibble(down_codes_, (expert * caps_.hidden + row) * caps_.intermediate + column, value);
}
void Int4Experts::set_row_scale(std::int64_t fused, float value) {
  const std::int64_t groups = groups_per_row(caps_.format, caps_.hidden);
  for (std::int64_t group = 0; group < groups; ++group) first_scales_[fused * groups + group] = float_to_bf16(value);
}
void Int4Experts::gate_scale(std::int64_t expert, std::int64_t row, float value) {
  set_row_scale(expert * caps_.gate_up_rows() + fused_row(false, row), value);
}
void Int4Experts::up_scale(std::int64_t expert, std::int64_t row, float value) {
  set_row_scale(expert * caps_.gate_up_rows() + fused_row(true, row), value);
}
void Int4Experts::gate_bias(std::int64_t expert, std::int64_t row, float value) {
  first_bias_[expert * caps_.gate_up_rows() + fused_row(false, row)] = float_to_bf16(value);
}
void Int4Experts::up_bias(std::int64_t expert, std::int64_t row, float value) {
  first_bias_[expert * caps_.gate_up_rows() + fused_row(true, row)] = float_to_bf16(value);
}
void Int4Experts::down_bias(std::int64_t expert, std::int64_t row, float value) {
  down_bias_[expert * caps_.hidden + row] = float_to_bf16(value);
}

}  // namespace support
