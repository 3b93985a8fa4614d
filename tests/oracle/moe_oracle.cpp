// How far a right answer may be from the true one, per element. u is the unit roundoff of the activation dtype
// (2^-8 bf16, 2^-11 fp16, 2^-24 fp32), e = 2^-24 that of the fp32 sums, s(n) = min(n, 8 sqrt(n)) e bounds n fp32
// roundings in any order (worst case, and the probabilistic bound of Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
//   first projection   d_h = s(K + groups + 4) (sum |w x| |factor| + |bias|)
//   activation         d_a = largest change of act over +-d_h, + (16 + 2 |g|) e of its size, + half the smallest
//                      subnormal; what the dtype's rounding adds goes to `rounding`
//   rounding of a      u |a| each, independent between experts: 3 u sqrt(sum (f w2 a)^2), at most u sum |f w2 a|;
//                      slots of a token that name one expert round alike, so their f add up before the square
//   second projection  sum |f w2| d_a + s(I + groups + k + 4) (sum |f w2 a| + |f bias|)
//   store              u |out| + half the smallest subnormal
#include "oracle/moe_oracle.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace oracle {
namespace {

using fourfold::ActivationKind;
using fourfold::Caps;
using fourfold::ConstTensorView;
using fourfold::DType;
using fourfold::GateUpOrder;
using fourfold::MoeTensors;
using fourfold::StackedExperts;
using fourfold::WeightFormat;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kUnit32 = 0x1p-24;

struct Precision {
  double unit, tiny, largest;  // unit roundoff, half the smallest subnormal, first magnitude that rounds to infinity
};

Precision precision(DType dtype) {
  if (dtype == DType::bf16) return {0x1p-8, 0x1p-134, 0x1.ffp+127};
  if (dtype == DType::f16) return {0x1p-11, 0x1p-25, 65520.0};
  return {0x1p-24, 0x1p-150, 0x1.ffffffp+127};
}

double sum_error(double n) { return std::fmin(n, 8 * std::sqrt(n)) * kUnit32; }

double overflow(double v, const Precision& p) {
  return std::fabs(v) >= p.largest ? std::copysign(std::numeric_limits<double>::infinity(), v) : v;
}

/// All weights of one expert's matrix [rows, k], global scale included.
std::vector<double> weights_of(const Caps& caps, ConstTensorView codes, ConstTensorView scales, ConstTensorView zeros,
                               std::int64_t expert, std::int64_t rows, std::int64_t k) {
  const std::int64_t group = caps.format.group_size ? caps.format.group_size : k;
  const std::int64_t groups = (k + group - 1) / group;
  std::vector<double> w(static_cast<std::size_t>(rows * k));
  const auto* nibbles = static_cast<const unsigned char*>(codes.data) + expert * rows * k / 2;
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t i = 0; i < k; ++i) {
      const unsigned pair = nibbles[(n * k + i) / 2], code = i & 1 ? pair >> 4 : pair & 15u;
      const std::int64_t at = (expert * rows + n) * groups + i / group;
      double v = 0;
      if (caps.format.format == WeightFormat::nvfp4) {
        v = decode_e2m1(code) * decode_e4m3(static_cast<const std::uint8_t*>(scales.data)[at]);
      } else if (caps.format.format == WeightFormat::mxfp4) {
        v = decode_e2m1(code) * decode_e8m0(static_cast<const std::uint8_t*>(scales.data)[at]);
      } else {
        const int zero = zeros.data ? static_cast<const std::uint8_t*>(zeros.data)[at] : 8;
        v = (static_cast<int>(code) - zero) * real_element(scales, at);
      }
      w[n * k + i] = v;
    }
  return w;
}

std::int64_t read_id(ConstTensorView ids, std::int64_t at) {
  if (ids.dtype == DType::i64) return static_cast<const std::int64_t*>(ids.data)[at];
  return static_cast<const std::int32_t*>(ids.data)[at];
}

struct Call {
  const Caps& caps;
  const StackedExperts& experts;
  const MoeTensors& tensors;
  Precision p;
  std::int64_t hidden, inner, groups_hidden, groups_inner;
  std::vector<double> sum, square, absolute, spread;  // [T, H]
  std::vector<double> deviation;                      // [T, H] sqrt(square) of the expert at hand

  /// First and second projection of one route; the weights are those of its expert.
  void add_route(std::int64_t expert, std::int64_t token, std::int64_t slot, const std::vector<double>& w1,
                 const std::vector<double>& w2) {
    const double weight = static_cast<const float*>(tensors.topk_weights.data)[token * caps.top_k + slot];
    const double on_input = caps.router_weight_on_input ? weight : 1,
                 on_output = caps.router_weight_on_input ? 1 : weight;
    const bool gated = caps.activation.kind != ActivationKind::relu2;
    const std::int64_t rows = gated ? 2 * inner : inner;
    std::vector<double> h(rows), dh(rows), x(hidden), a(inner), da(inner);
    for (std::int64_t i = 0; i < hidden; ++i) x[i] = real_element(tensors.x, token * hidden + i);
    for (std::int64_t n = 0; n < rows; ++n) {
      double total = 0, size = 0;
      for (std::int64_t i = 0; i < hidden; ++i) {
        const double term = w1[n * hidden + i] * x[i];
        total += term;
        size += std::fabs(term);
      }
      const double global = global_of(expert, n, gated);
      const double bias = caps.gate_up_bias ? real_element(experts.gate_up_bias, expert * rows + n) : 0;
      h[n] = on_input * (total * global) + bias;
      dh[n] = sum_error(static_cast<double>(hidden + groups_hidden + 4)) *
              (std::fabs(on_input * global) * size + std::fabs(bias));
    }
    for (std::int64_t i = 0; i < inner; ++i) activate_one(i, gated, h, dh, a, da);
    const double global =
        caps.format.format == WeightFormat::nvfp4 ? static_cast<const float*>(experts.down_global.data)[expert] : 1.0;
    for (std::int64_t n = 0; n < hidden; ++n) {
      double total = 0, squares = 0, size = 0, carried = 0;
      for (std::int64_t i = 0; i < inner; ++i) {
        const double w = w2[n * inner + i] * global, term = w * a[i];
        total += term;
        squares += term * term;
        size += std::fabs(term);
        carried += std::fabs(w) * da[i];
      }
      const double bias = caps.down_bias ? real_element(experts.down_bias, expert * hidden + n) : 0;
      const std::int64_t at = token * hidden + n;
      sum[at] += on_output * (total + bias);
      deviation[at] += std::fabs(on_output) * std::sqrt(squares);
      absolute[at] += std::fabs(on_output) * size;
      spread[at] +=
          std::fabs(on_output) *
          (carried + sum_error(static_cast<double>(inner + groups_inner + caps.top_k + 4)) * (size + std::fabs(bias)));
    }
  }

  /// Where gate i and up i are in the fused rows.
  std::int64_t gate_row(std::int64_t i) const {
    if (experts.order == GateUpOrder::gate_up) return i;
    return experts.order == GateUpOrder::up_gate ? inner + i : 2 * i;
  }
  std::int64_t up_row(std::int64_t i, bool gated) const {
    if (!gated || experts.order == GateUpOrder::up_gate) return i;
    return experts.order == GateUpOrder::gate_up ? inner + i : 2 * i + 1;
  }

  double global_of(std::int64_t expert, std::int64_t row, bool gated) const {
    if (caps.format.format != WeightFormat::nvfp4) return 1;
    const auto* globals = static_cast<const float*>(experts.gate_up_global.data);
    if (!gated) return globals[expert];
    bool is_up = row >= inner;
    if (experts.order == GateUpOrder::up_gate) is_up = !is_up;
    if (experts.order == GateUpOrder::interleaved) is_up = row & 1;
    return globals[expert * 2 + (is_up ? 1 : 0)];
  }

  void activate_one(std::int64_t i, bool gated, const std::vector<double>& h, const std::vector<double>& dh,
                    std::vector<double>& a, std::vector<double>& da) const {
    const std::int64_t up_at = up_row(i, gated), gate_at = gated ? gate_row(i) : up_at;
    const double g = h[gate_at], u = h[up_at], value = activate(caps.activation, g, u);
    double change = 0;
    for (int corner = 0; corner < 4; ++corner) {
      const double moved =
          activate(caps.activation, g + (corner & 1 ? 1 : -1) * dh[gate_at], u + (corner & 2 ? 1 : -1) * dh[up_at]);
      change = std::fmax(change, std::fabs(moved - value));
    }
    // gelu's 1 + tanh(z) cancels for negative gates: its absolute error is that of 1 times |g u|.
    double size = std::fabs(value);
    if (caps.activation.kind == ActivationKind::gelu_tanh) size += std::fabs(g * u);
    a[i] = overflow(value, p);
    da[i] = change + (16 + 2 * std::fmin(std::fabs(g), 128)) * kUnit32 * size + p.tiny;
  }
};

}  // namespace

double decode_e2m1(unsigned code) {
  const unsigned exponent = (code >> 1) & 3u, mantissa = code & 1u;
  const double magnitude = exponent == 0 ? 0.5 * mantissa : (1 + 0.5 * mantissa) * (1 << (exponent - 1));
  return code & 8u ? -magnitude : magnitude;
}

double decode_e4m3(std::uint8_t byte) {
  const int exponent = byte >> 3 & 0xf, mantissa = byte & 0x7;
  if (exponent == 15 && mantissa == 7) return kNan;
  const double magnitude =
      exponent == 0 ? mantissa * std::ldexp(1.0, -9) : (1 + mantissa / 8.0) * std::ldexp(1.0, exponent - 7);
  return byte >> 7 ? -magnitude : magnitude;
}

double decode_e8m0(std::uint8_t byte) { return byte == 0xff ? kNan : std::ldexp(1.0, static_cast<int>(byte) - 127); }

double decode_bf16(std::uint16_t bits) {
  const int exponent = bits >> 7 & 0xff, mantissa = bits & 0x7f;
  double magnitude = 0;
  if (exponent == 255)
    magnitude = mantissa ? kNan : std::numeric_limits<double>::infinity();
  else
    magnitude = exponent == 0 ? mantissa * std::ldexp(1.0, -133) : (128 + mantissa) * std::ldexp(1.0, exponent - 134);
  return bits >> 15 ? -magnitude : magnitude;
}

double decode_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  double magnitude = 0;
  if (exponent == 31)
    magnitude = mantissa ? kNan : std::numeric_limits<double>::infinity();
  else
    magnitude = exponent == 0 ? mantissa * std::ldexp(1.0, -24) : (1024 + mantissa) * std::ldexp(1.0, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

double real_element(ConstTensorView tensor, std::int64_t index) {
  if (tensor.dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, static_cast<const char*>(tensor.data) + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(tensor.data) + index * 2, 2);
  return tensor.dtype == DType::bf16 ? decode_bf16(bits) : decode_f16(bits);
}

double activate(const fourfold::Activation& activation, double g, double u) {
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto clamp_up = [](double v, double limit) { return v > limit ? limit : v < -limit ? -limit : v; };
  switch (activation.kind) {
    case ActivationKind::silu:
      if (activation.limit && g > *activation.limit) g = *activation.limit;
      if (activation.limit) u = clamp_up(u, *activation.limit);
      return g * logistic(g) * u;
    case ActivationKind::swiglu_oai: {
      const double limit = activation.limit ? *activation.limit : 7,
                   alpha = activation.alpha ? *activation.alpha : 1.702f;
      if (g > limit) g = limit;
      return g * logistic(alpha * g) * (clamp_up(u, limit) + (activation.beta ? *activation.beta : 1));
    }
    case ActivationKind::situ:
      return 4 * std::tanh(g / 4) * logistic(g) * 25 * std::tanh(u / 25);
    case ActivationKind::gelu_tanh:
      return g / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * std::pow(g, 3)))) * u;
    case ActivationKind::relu2:
      return u < 0 ? 0 : u * u;
  }
  return kNan;
}

Truth evaluate(const Caps& caps, const StackedExperts& experts, const MoeTensors& tensors) {
  const std::int64_t tokens = tensors.x.shape[0], total = tokens * caps.hidden;
  const auto groups = [&](std::int64_t k) {
    return caps.format.group_size ? (k + caps.format.group_size - 1) / caps.format.group_size : 1;
  };
  Call call{caps,
            experts,
            tensors,
            precision(caps.activation_dtype),
            caps.hidden,
            caps.intermediate,
            groups(caps.hidden),
            groups(caps.intermediate),
            {},
            {},
            {},
            {},
            {}};
  for (auto* plane : {&call.sum, &call.square, &call.absolute, &call.spread, &call.deviation})
    plane->assign(total, 0.0);
  Truth truth;
  std::vector<std::int64_t> local(tokens * caps.top_k, -1);
  const std::int64_t id_end = caps.global_experts > 0 ? caps.global_experts : caps.experts;
  for (std::size_t i = 0; i < local.size(); ++i) {
    std::int64_t id = read_id(tensors.topk_ids, i);
    if (id == -1) continue;
    bool bad = id < 0 || id >= id_end;
    if (!bad && caps.global_experts > 0) {
      id = static_cast<const std::int32_t*>(tensors.expert_map.data)[id];
      bad = id < -1 || id >= caps.experts;
    }
    truth.invalid_ids += bad;
    if (!bad) local[i] = id;
  }
  const std::int64_t rows = (caps.activation.kind == ActivationKind::relu2 ? 1 : 2) * caps.intermediate;
  for (std::int64_t expert = 0; expert < caps.experts; ++expert) {
    bool used = false;
    for (std::int64_t id : local) used = used || id == expert;
    if (!used) continue;
    const auto w1 = weights_of(caps, experts.gate_up_codes, experts.gate_up_scales, experts.gate_up_zeros, expert, rows,
                               caps.hidden);
    const auto w2 = weights_of(caps, experts.down_codes, experts.down_scales, experts.down_zeros, expert, caps.hidden,
                               caps.intermediate);
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t slot = 0; slot < caps.top_k; ++slot)
        if (local[token * caps.top_k + slot] == expert) call.add_route(expert, token, slot, w1, w2);
      for (std::int64_t at = token * caps.hidden; at < (token + 1) * caps.hidden; ++at) {
        call.square[at] += call.deviation[at] * call.deviation[at];
        call.deviation[at] = 0;
      }
    }
  }
  truth.value.resize(total);
  truth.tolerance.resize(total);
  for (std::int64_t i = 0; i < total; ++i) {
    const double rounding = call.p.unit * std::fmin(3 * std::sqrt(call.square[i]), call.absolute[i]);
    truth.tolerance[i] = rounding + call.spread[i] + call.p.unit * std::fabs(call.sum[i]) + call.p.tiny;
    truth.value[i] = overflow(call.sum[i], call.p);
  }
  return truth;
}

Difference difference(ConstTensorView out, const Truth& truth) {
  Difference result;
  for (std::size_t i = 0; i < truth.value.size(); ++i) {
    const double got = real_element(out, i), want = truth.value[i];
    bool right = false;
    if (std::isnan(want)) {
      right = std::isnan(got);
    } else if (std::isinf(want)) {
      right = got == want;
    } else if (std::isfinite(got)) {
      const double error = std::fabs(got - want);
      right = error <= truth.tolerance[i];
      if (error > 0) result.worst = std::fmax(result.worst, error / truth.tolerance[i]);
    }
    ++result.compared;
    if (!right && result.wrong++ == 0) result.first_wrong = static_cast<std::int64_t>(i);
  }
  return result;
}

}  // namespace oracle
