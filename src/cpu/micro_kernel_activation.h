// The activation between the two projections, for one register of fp32 lanes at a time. Internal linkage, as in
// micro_kernel_loops.h. exp and tanh follow Cephes (Moshier, expf.c and tanhf.c): about 2 units in the last place,
// IEEE limits at the ends, NaN in, NaN out.
#pragma once

#include <cstdint>

#include "cpu/micro_kernel.h"

namespace fourfold::cpu {
namespace {

/// Lane-wise functions over Isa::Floats, a compiler vector type: + - * / and comparisons are per lane.
template <class Isa>
struct Lanes {
  using F = typename Isa::Floats;
  using W = typename Isa::Words;  // unsigned 32-bit lanes
  using S = typename Isa::SignedWords;

  static F all(float value) { return Isa::broadcast(value); }
  static F less_of(F a, F b) { return a > b ? b : a; }    // NaN in a stays
  static F larger_of(F a, F b) { return a < b ? b : a; }  // NaN in a stays

  /// e^x: 0 below -104, infinity above 88.73.
  static F exp(F x) {
    x = larger_of(less_of(x, all(89.0f)), all(-104.0f));
    const F magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
    const F shifted = x * all(1.44269504088896341f) + magic;
    const F n = shifted - magic;
    const F r = x - n * all(0.693359375f) + n * all(2.12194440e-4f);  // ln 2 in two parts, the first exact
    F y = all(1.9875691500e-4f);
    y = y * r + all(1.3981999507e-3f);
    y = y * r + all(8.3334519073e-3f);
    y = y * r + all(4.1665795894e-2f);
    y = y * r + all(1.6666665459e-1f);
    y = y * r + all(5.0000001201e-1f);
    y = y * r * r + r + all(1.0f);
    const S exponent = (S)shifted - (S)magic;  // -150 .. 128: two factors, each a normal number
    const S half = exponent >> 1;
    return y * (F)((half + 127) << 23) * (F)((exponent - half + 127) << 23);
  }

  static F sigmoid(F x) { return all(1.0f) / (all(1.0f) + exp(-x)); }

  static F tanh(F x) {
    const F magnitude = (F)((W)x & 0x7fffffffu);
    const F square = x * x;
    F p = all(-5.70498872745e-3f);
    p = p * square + all(2.06390887954e-2f);
    p = p * square + all(-5.37397155531e-2f);
    p = p * square + all(1.33314422036e-1f);
    p = p * square + all(-3.33332819422e-1f);
    const F small = p * square * x + x;
    const F large = all(1.0f) - all(2.0f) / (exp(magnitude + magnitude) + all(1.0f));
    const F signed_large = (F)((W)large | ((W)x & 0x80000000u));
    return magnitude < all(0.625f) ? small : signed_large;
  }

  static F activation(const ActivateCall& call, F g, F u) {
    switch (call.function) {
      case ActivationFunction::silu:
        if (call.has_limit) {
          g = less_of(g, all(call.limit));
          u = larger_of(less_of(u, all(call.limit)), all(-call.limit));
        }
        return g * sigmoid(g) * u;
      case ActivationFunction::swiglu_oai:
        g = less_of(g, all(call.limit));
        u = larger_of(less_of(u, all(call.limit)), all(-call.limit));
        return g * sigmoid(g * all(call.alpha)) * (u + all(call.beta));
      case ActivationFunction::situ:
        return all(4.0f) * tanh(g * all(0.25f)) * sigmoid(g) * (all(25.0f) * tanh(u / all(25.0f)));
      case ActivationFunction::gelu_tanh: {
        // (1 + tanh z) / 2 = sigmoid(2 z), without the cancellation near tanh z = -1
        const F z = all(1.59576912160573081f) * (g + all(0.044715f) * g * g * g);  // 2 sqrt(2 / pi) (...)
        return g * sigmoid(z) * u;
      }
      case ActivationFunction::relu2: {
        const F positive = larger_of(u, all(0.0f));
        return positive * positive;
      }
    }
    return u;
  }

  /// fp32 to the nearest bf16 or f16 value (ties to even), still as fp32.
  static F rounded(F value, RoundTo to) {
    const W bits = (W)value;
    if (to == RoundTo::bf16) {
      const W nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
      return value == value ? (F)nearest : (F)((bits | 0x400000u) & 0xffff0000u);
    }
    if (to == RoundTo::f16) {
      const W sign = bits & 0x80000000u;
      const F magnitude = (F)(bits & 0x7fffffffu);
      const F normal = (F)(((W)magnitude + 0xfffu + (((W)magnitude >> 13) & 1u)) & 0xffffe000u);
      const F subnormal = (magnitude + all(0.5f)) - all(0.5f);  // the adder rounds at 2^-24
      F nearest = magnitude < all(0x1p-14f) ? subnormal : normal;
      nearest = nearest > all(65504.0f) ? all(__builtin_inff()) : nearest;
      const F finite = (F)((W)nearest | sign);
      return value == value ? finite : value;
    }
    return value;
  }
};

template <class Isa>
typename Isa::Floats projected(const float* sums, typename Isa::Floats global, const float* bias,
                               const float* input_factor) {
  typename Isa::Floats value = Isa::load(sums) * global;
  if (input_factor) value = value * Isa::broadcast(*input_factor);
  if (bias) value = value + Isa::load(bias);
  return value;
}

template <class Isa>
void activate(const ActivateCall& call) {
  using F = typename Isa::Floats;
  using W = typename Isa::Words;
  const F gate_global = Isa::broadcast(call.gate_global);
  const F up_global = Isa::broadcast(call.up_global);
  W lane{};
  for (int i = 0; i < Isa::kWidth; ++i) lane[i] = static_cast<std::uint32_t>(i);
  for (int t = 0; t < call.tokens; ++t) {
    const float* const factor = call.input_factors ? call.input_factors + t : nullptr;
    std::uint8_t* const out = call.out_rows[t];
    for (int column = 0; column < call.panel_count * kPanelRows; column += Isa::kWidth) {
      const F u = projected<Isa>(call.up_sums + t * kCallColumns + column, up_global,
                                 call.up_bias ? call.up_bias + column : nullptr, factor);
      F g = u;
      if (call.gate_sums)
        g = projected<Isa>(call.gate_sums + t * kCallColumns + column, gate_global,
                           call.gate_bias ? call.gate_bias + column : nullptr, factor);
      F value = Lanes<Isa>::rounded(Lanes<Isa>::activation(call, g, u), call.round_to);
      // Padded columns are zero whatever the token holds: an infinity must not reach them.
      const int valid = call.columns - column;
      if (valid < Isa::kWidth) value = lane < static_cast<std::uint32_t>(valid < 0 ? 0 : valid) ? value : F{};
      Isa::store_activated(out, column, value);
    }
  }
}

}  // namespace
}  // namespace fourfold::cpu
