// Double-precision evaluation of one call, row by row of the weights; formulas as in include/fourfold/plan.h.
#include "moe/reference_moe.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "core/check.h"
#include "core/float16.h"
#include "plan/problem.h"

namespace fourfold {
namespace {

constexpr std::array<double, 8> kE2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

double e4m3(std::uint8_t byte) {
  const int exponent = (byte >> 3) & 15, mantissa = byte & 7;
  if ((byte & 127) == 127) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte & 128 ? -magnitude : magnitude;
}

double e8m0(std::uint8_t byte) {
  return byte == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, byte - 127);
}

double element(ConstTensorView tensor, std::int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(tensor.data) + index * dtype_bits(tensor.dtype) / 8;
  std::uint16_t half = 0;
  float single = 0;
  switch (tensor.dtype) {
    case DType::bf16:
      std::memcpy(&half, bytes, 2);
      return bf16_to_float(half);
    case DType::f16:
      std::memcpy(&half, bytes, 2);
      return f16_to_float(half);
    case DType::f32:
      std::memcpy(&single, bytes, 4);
      return single;
    case DType::f8_e4m3:
      return e4m3(std::to_integer<std::uint8_t>(*bytes));
    case DType::f8_e8m0:
      return e8m0(std::to_integer<std::uint8_t>(*bytes));
    default:
      fail(ErrorCode::bad_input, "reference: dtype {} holds no real numbers; pass BF16, F16 or F32",
           dtype_name(tensor.dtype));
  }
}

/// One stacked matrix [E, rows, k] of a format.
struct StackedMatrix {
  const Caps* caps = nullptr;
  std::int64_t rows = 0, k = 0;
  ConstTensorView codes, scales, zeros;

  /// Row `row` of expert `expert` without its global scale, into out[k].
  void decode_row(std::int64_t expert, std::int64_t row, double* out) const {
    const FormatSpec& format = caps->format;
    const std::int64_t groups = groups_per_row(format, k);
    const std::int64_t group_size = format.group_size == 0 ? k : format.group_size;
    const std::int64_t line = expert * rows + row;
    const std::uint8_t* line_codes = codes.as<std::uint8_t>() + line * (k / 2);
    ConstTensorView typed_scales = scales;
    if (format.format == WeightFormat::mxfp4) typed_scales.dtype = DType::f8_e8m0;
    for (std::int64_t group = 0; group < groups; ++group) {
      const double scale = element(typed_scales, line * groups + group);
      const double zero = zeros.absent() ? 8 : zeros.as<std::uint8_t>()[line * groups + group];
      for (std::int64_t i = group * group_size; i < std::min(k, (group + 1) * group_size); ++i) {
        const int code = (line_codes[i / 2] >> (i % 2 * 4)) & 15;
        const double value = format.format == WeightFormat::int4 ? code - zero
                             : code & 8                          ? -kE2m1[code & 7]
                                                                 : kE2m1[code];
        out[i] = value * scale;
      }
    }
  }
};

struct Sums {
  double plain = 0, square = 0, absolute = 0;
};

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

Sums dot_sums(const double* a, const double* b, std::int64_t n) {
  double plain = 0, square = 0, absolute = 0;
#pragma omp simd reduction(+ : plain, square, absolute)
  for (std::int64_t i = 0; i < n; ++i) {
    const double product = a[i] * b[i];
    plain += product;
    square += product * product;
    absolute += std::fabs(product);
  }
  return {plain, square, absolute};
}

// std::min and std::max drop a NaN in one argument; IEEE 754-2019 minimum and maximum keep it.
double at_most(double value, double limit) { return value > limit ? limit : value; }
double at_least(double value, double limit) { return value < limit ? limit : value; }
double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

double activate(const Activation& activation, double gate, double up) {
  switch (activation.kind) {
    case ActivationKind::silu:
      if (activation.limit) {
        gate = at_most(gate, *activation.limit);
        up = at_least(at_most(up, *activation.limit), -static_cast<double>(*activation.limit));
      }
      return gate * sigmoid(gate) * up;
    case ActivationKind::swiglu_oai: {
      const double limit = activation.limit.value_or(7.0f);
      gate = at_most(gate, limit);
      up = at_least(at_most(up, limit), -limit);
      return gate * sigmoid(activation.alpha.value_or(1.702f) * gate) * (up + activation.beta.value_or(1.0f));
    }
    case ActivationKind::situ:
      return 4 * std::tanh(gate / 4) * sigmoid(gate) * 25 * std::tanh(up / 25);
    case ActivationKind::gelu_tanh:
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case ActivationKind::relu2:
      return at_least(up, 0) * at_least(up, 0);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Half the unit roundoff: the scale of one rounding in a root mean square over many.
double rounding_scale(DType dtype) { return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-25; }

/// What no longer fits fp16 is infinite there. bf16 and f32 share fp32's range, where the sums overflow first.
double saturate(double value, DType dtype) {
  const double first_infinite = dtype == DType::f16 ? 65520.0 : 0x1.ffffffp+127;
  return std::fabs(value) >= first_infinite ? std::copysign(HUGE_VAL, value) : value;
}

struct Route {
  std::int64_t token = 0, slot = 0;
};

std::int64_t id_at(ConstTensorView ids, std::int64_t index) {
  return ids.dtype == DType::i64 ? ids.as<std::int64_t>()[index] : ids.as<std::int32_t>()[index];
}

class Evaluation {
 public:
  Evaluation(const Caps& caps, const StackedExperts& experts, const MoeTensors& tensors)
      : caps_(caps), experts_(experts), tensors_(tensors), tokens_(tensors.x.shape[0]) {
    const std::int64_t elements = checked_mul(tokens_, caps.hidden, "reference output elements");
    expected_.assign(elements, 0);
    variance_.assign(elements, 0);
    magnitude_.assign(elements, 0);
    fp32_error_.assign(caps.activation_dtype == DType::f32 ? elements : 0, 0);
  }

  ReferenceResult evaluate() {
    ReferenceResult result;
    std::vector<std::vector<Route>> routes(caps_.experts);
    for (std::int64_t token = 0; token < tokens_; ++token)
      for (std::int64_t slot = 0; slot < caps_.top_k; ++slot) {
        std::int64_t id = id_at(tensors_.topk_ids, token * caps_.top_k + slot);
        bool valid = id >= -1 && id < caps_.id_count();
        if (valid && id >= 0 && caps_.global_experts > 0) {
          id = tensors_.expert_map.as<std::int32_t>()[id];
          valid = id >= -1 && id < caps_.experts;
        }
        if (!valid) ++result.invalid_ids;
        if (valid && id >= 0) routes[id].push_back({token, slot});
      }
    for (std::int64_t expert = 0; expert < caps_.experts; ++expert)
      if (!routes[expert].empty()) add_expert(expert, routes[expert]);
    finish(result);
    return result;
  }

 private:
  double routing_weight(Route route) const {
    return tensors_.topk_weights.as<float>()[route.token * caps_.top_k + route.slot];
  }

  /// Row of the fused matrix that holds gate `i` (half 0) or up `i` (half 1); not gated: row i.
  std::int64_t fused_row(std::int64_t half, std::int64_t i) const {
    if (!caps_.activation.gated()) return i;
    if (experts_.order == GateUpOrder::interleaved) return 2 * i + half;
    return (experts_.order == GateUpOrder::up_gate ? 1 - half : half) * caps_.intermediate + i;
  }

  void add_expert(std::int64_t expert, std::span<const Route> routes) {
    const std::int64_t hidden = caps_.hidden, count = routes.size();
    x_.resize(count * hidden);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t i = 0; i < hidden; ++i) x_[r * hidden + i] = element(tensors_.x, routes[r].token * hidden + i);
    activated_.assign(count * caps_.intermediate, 0);
    activated_error_.assign(fp32_error_.empty() ? 0 : count * caps_.intermediate, 0);
    add_first_projection(expert, routes);
    add_second_projection(expert, routes);
  }

  struct Projected {
    double value = 0, error = 0;
  };

  /// One element of the first projection with bias and, when asked for, the routing weight. `error`: K roundings of
  /// fp32 sums grow like 8 sqrt(K) units at most (probabilistic bound of Higham and Mary, 2019).
  Projected project(const double* row, const double* x, double global, double bias, double factor) const {
    if (fp32_error_.empty()) return {factor * (global * dot(row, x, caps_.hidden)) + bias, 0};
    const Sums sums = dot_sums(row, x, caps_.hidden);
    const double unit = 8 * std::sqrt(static_cast<double>(caps_.hidden)) * 0x1p-24;
    return {factor * (global * sums.plain) + bias,
            unit * (std::fabs(factor * global) * sums.absolute + std::fabs(bias))};
  }

  void add_first_projection(std::int64_t expert, std::span<const Route> routes) {
    const bool gated = caps_.activation.gated();
    const std::int64_t halves = gated ? 2 : 1, count = routes.size();
    const StackedMatrix matrix{&caps_,
                               caps_.gate_up_rows(),
                               caps_.hidden,
                               experts_.gate_up_codes,
                               experts_.gate_up_scales,
                               experts_.gate_up_zeros};
    // Here, so that no thread allocates: an exception cannot leave a parallel region.
    const std::int64_t threads = omp_get_max_threads();
    std::vector<double> rows(threads * caps_.hidden);
    std::vector<Projected> gates(threads * count), ups(threads * count);
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
      double* const row = rows.data() + omp_get_thread_num() * caps_.hidden;
      Projected* const gate = gates.data() + omp_get_thread_num() * count;
      Projected* const up = ups.data() + omp_get_thread_num() * count;
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < caps_.intermediate; ++i) {
        for (std::int64_t half = 0; half < halves; ++half) {
          const std::int64_t fused = fused_row(half, i);
          matrix.decode_row(expert, fused, row);
          const bool has_global = caps_.format.format == WeightFormat::nvfp4;
          const double global = has_global ? element(experts_.gate_up_global, expert * halves + half) : 1;
          const double bias =
              caps_.gate_up_bias ? element(experts_.gate_up_bias, expert * caps_.gate_up_rows() + fused) : 0;
          for (std::int64_t r = 0; r < count; ++r)
            (half == 0 && gated ? gate : up)[r] = project(row, x_.data() + r * caps_.hidden, global, bias,
                                                          caps_.router_weight_on_input ? routing_weight(routes[r]) : 1);
        }
        for (std::int64_t r = 0; r < count; ++r) store_activated(r * caps_.intermediate + i, gate[r], up[r]);
      }
    }
  }

  void store_activated(std::int64_t index, Projected gate, Projected up) {
    const double value = activate(caps_.activation, gate.value, up.value);
    activated_[index] = saturate(value, caps_.activation_dtype);
    if (fp32_error_.empty()) return;
    double spread = 0;
    for (double g : {gate.value - gate.error, gate.value + gate.error})
      for (double u : {up.value - up.error, up.value + up.error})
        spread = std::max(spread, std::fabs(activate(caps_.activation, g, u) - value));
    // Sixteen units for exp or tanh and the products; gelu's 1 + tanh cancels, so its unit is that of gate * up.
    const double size =
        caps_.activation.kind == ActivationKind::gelu_tanh ? std::fabs(gate.value * up.value) : std::fabs(value);
    activated_error_[index] = spread + 16 * 0x1p-24 * size;
  }

  void add_second_projection(std::int64_t expert, std::span<const Route> routes) {
    const std::int64_t inner = caps_.intermediate, count = routes.size();
    const StackedMatrix matrix{
        &caps_, caps_.hidden, inner, experts_.down_codes, experts_.down_scales, experts_.down_zeros};
    const double global = caps_.format.format == WeightFormat::nvfp4 ? element(experts_.down_global, expert) : 1;
    const std::int64_t threads = omp_get_max_threads();
    std::vector<double> rows(threads * inner);
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
      double* const row = rows.data() + omp_get_thread_num() * inner;
#pragma omp for schedule(static)
      for (std::int64_t n = 0; n < caps_.hidden; ++n) {
        matrix.decode_row(expert, n, row);
        for (std::int64_t k = 0; k < inner; ++k) row[k] *= global;
        const double bias = caps_.down_bias ? element(experts_.down_bias, expert * caps_.hidden + n) : 0;
        double deviation = 0;
        for (std::int64_t r = 0; r < count; ++r) {
          const Sums sums = dot_sums(row, activated_.data() + r * inner, inner);
          const double factor = caps_.router_weight_on_input ? 1 : routing_weight(routes[r]);
          const std::int64_t at = routes[r].token * caps_.hidden + n;
          expected_[at] += factor * (sums.plain + bias);
          // Slots of a token that name one expert round its intermediate alike: their factors add up.
          deviation += std::fabs(factor) * std::sqrt(sums.square);
          if (r + 1 == count || routes[r + 1].token != routes[r].token) {
            variance_[at] += deviation * deviation;
            deviation = 0;
          }
          magnitude_[at] += std::fabs(factor) * sums.absolute;
          if (fp32_error_.empty()) continue;
          const double unit = 8 * std::sqrt(static_cast<double>(inner)) * 0x1p-24;
          const Sums spread = dot_sums(row, activated_error_.data() + r * inner, inner);
          fp32_error_[at] += std::fabs(factor) * (spread.absolute + unit * (sums.absolute + std::fabs(bias)));
        }
      }
    }
  }

  void finish(ReferenceResult& result) {
    const double scale = rounding_scale(caps_.activation_dtype);
    result.bound.resize(expected_.size());
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      result.bound[i] =
          6 * scale * std::sqrt(variance_[i]) + 2 * scale * std::fabs(expected_[i]) + 1e-6 * magnitude_[i] + 1e-30;
      if (!fp32_error_.empty()) result.bound[i] += fp32_error_[i];
      expected_[i] = saturate(expected_[i], caps_.activation_dtype);
    }
    result.expected = std::move(expected_);
  }

  const Caps& caps_;
  const StackedExperts& experts_;
  const MoeTensors& tensors_;
  std::int64_t tokens_ = 0;
  std::vector<double> expected_, variance_, magnitude_, fp32_error_;  // [T, H]; the last one for f32 only
  std::vector<double> x_;                                             // [routes of the expert, H]
  std::vector<double> activated_, activated_error_;                   // [routes of the expert, I]
};

void check_shape(ConstTensorView tensor, const char* name, std::initializer_list<std::int64_t> shape) {
  bool same = tensor.rank == static_cast<int>(shape.size());
  int axis = 0;
  for (std::int64_t extent : shape) same = same && tensor.shape[axis++] == extent;
  check(same, ErrorCode::bad_input, "reference: tensor {} has not the shape that the caps ask for", name);
}

void check_dtype(ConstTensorView tensor, const char* name, std::initializer_list<DType> accepted) {
  check(std::find(accepted.begin(), accepted.end(), tensor.dtype) != accepted.end(), ErrorCode::bad_input,
        "reference: tensor {} is {}, which the caps do not accept", name, dtype_text(tensor.dtype));
  check(tensor.bytes() == 0 || tensor.data != nullptr, ErrorCode::bad_input,
        "reference: tensor {} has a null pointer, expected {} bytes", name, tensor.bytes());
}

}  // namespace

ReferenceResult reference_moe(const Caps& caps, const StackedExperts& experts, const MoeTensors& tensors) {
  const std::int64_t tokens = tensors.x.rank == 2 ? tensors.x.shape[0] : -1;
  check_shape(tensors.x, "x", {tokens, caps.hidden});
  check_shape(tensors.topk_ids, "topk_ids", {tokens, caps.top_k});
  check_shape(tensors.topk_weights, "topk_weights", {tokens, caps.top_k});
  check_dtype(tensors.x, "x", {caps.activation_dtype});
  check_dtype(tensors.topk_ids, "topk_ids", {DType::i32, DType::i64});
  check_dtype(tensors.topk_weights, "topk_weights", {DType::f32});
  if (caps.global_experts > 0) {
    check_shape(tensors.expert_map, "expert_map", {caps.global_experts});
    check_dtype(tensors.expert_map, "expert_map", {DType::i32});
  } else {
    check(tensors.expert_map.absent(), ErrorCode::bad_input,
          "reference: expert_map is given, but caps.global_experts = 0 takes none");
  }
  stacked_source(experts, caps);  // its constructor checks every weight tensor
  return Evaluation(caps, experts, tensors).evaluate();
}

}  // namespace fourfold
