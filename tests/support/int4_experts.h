// Experts whose weights are small integers written one by one: int4 codes with scale 1.
#pragma once

#include <cstdint>
#include <vector>

#include "fourfold/plan.h"
#include "fourfold/weights.h"

namespace support {

/// All weights zero until set. `caps.format` must be int4 without zero points; biases are bf16 and zero until set.
class Int4Experts {
 public:
  Int4Experts(const fourfold::Caps& caps, fourfold::GateUpOrder order = fourfold::GateUpOrder::gate_up);
  /// Value -8 .. 7. `row` counts within gate, up (or the ungated projection) or down.
  void gate(std::int64_t expert, std::int64_t row, std::int64_t column, int value);
  void up(std::int64_t expert, std::int64_t row, std::int64_t column, int value);
  void down(std::int64_t expert, std::int64_t row, std::int64_t column, int value);
  /// Scale of a whole row (all groups), rounded to bf16.
  void gate_scale(std::int64_t expert, std::int64_t row, float value);
  void up_scale(std::int64_t expert, std::int64_t row, float value);
  void gate_bias(std::int64_t expert, std::int64_t row, float value);
  void up_bias(std::int64_t expert, std::int64_t row, float value);
  void down_bias(std::int64_t expert, std::int64_t row, float value);
  const fourfold::StackedExperts& stacked() const { return stacked_; }

 private:
  std::int64_t fused_row(bool is_up, std::int64_t row) const;
  void set_nibble(std::vector<std::uint8_t>& codes, std::int64_t at, int value);
  void set_row_scale(std::int64_t fused, float value);

  fourfold::Caps caps_;
  std::vector<std::uint8_t> first_codes_, down_codes_;
  std::vector<std::uint16_t> first_scales_, down_scales_, first_bias_, down_bias_;
  fourfold::StackedExperts stacked_;
};

}  // namespace support
