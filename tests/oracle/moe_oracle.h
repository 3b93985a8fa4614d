// The operation in double precision, written from the definition for the tests alone: shares no code with src/.
#pragma once

#include <cstdint>
#include <vector>

#include "fourfold/moe.h"

namespace oracle {

/// Exact value of a weight code and its scale, before the global scale.
double decode_e2m1(unsigned code);      // 0..15
double decode_e4m3(std::uint8_t byte);  // 0x7f and 0xff are NaN
double decode_e8m0(std::uint8_t byte);  // 255 is NaN
double decode_bf16(std::uint16_t bits);
double decode_f16(std::uint16_t bits);
/// Element `index` of a bf16, f16 or f32 tensor.
double real_element(fourfold::ConstTensorView tensor, std::int64_t index);

/// The activation of include/fourfold/plan.h. `gate` is not looked at without a gate.
double activate(const fourfold::Activation& activation, double gate, double up);

struct Truth {
  std::vector<double> value;      // [T, H], rounded to infinity where the dtype overflows
  std::vector<double> tolerance;  // [T, H], see moe_oracle.cpp
  std::uint64_t invalid_ids = 0;
};

/// What the call must give, and how far an implementation that rounds at the documented points only may be off.
Truth evaluate(const fourfold::Caps& caps, const fourfold::StackedExperts& experts,
               const fourfold::MoeTensors& tensors);

struct Difference {
  std::int64_t compared = 0, wrong = 0;
  double worst = 0;  // |out - value| / tolerance over finite pairs
  std::int64_t first_wrong = -1;
};
/// Element by element; NaN wants NaN, an infinity the same one, a number a number within tolerance.
Difference difference(fourfold::ConstTensorView out, const Truth& truth);

}  // namespace oracle
