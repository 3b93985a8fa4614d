// Experts in stacked tensors as a source: halves and interleaved rows become row strides, nothing is copied.
#include "moe/stacked_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>

#include "core/check.h"
#include "formats/validation.h"
#include "plan/problem.h"

namespace fourfold {
namespace {

using DTypes = std::initializer_list<DType>;

std::string dtypes_text(DTypes accepted) {
  std::string text;
  for (DType dtype : accepted) text += (text.empty() ? "" : " or ") + dtype_text(dtype);
  return text;
}

std::string shape_text(std::initializer_list<std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

void check_tensor(std::string_view name, const ConstTensorView& view, DTypes dtypes,
                  std::initializer_list<std::int64_t> shape) {
  check(!view.absent(), ErrorCode::bad_input, "{} is missing; expected {} {}", name, dtypes_text(dtypes),
        shape_text(shape));
  check(std::find(dtypes.begin(), dtypes.end(), view.dtype) != dtypes.end(), ErrorCode::bad_input,
        "{} is {}, expected {}", name, dtype_text(view.dtype), dtypes_text(dtypes));
  const bool rank_known = view.rank >= 0 && view.rank <= kMaxRank;
  check(rank_known && std::equal(shape.begin(), shape.end(), view.shape.begin(), view.shape.begin() + view.rank),
        ErrorCode::bad_input, "{} has shape [{}], expected {}", name,
        fmt::join(view.shape.begin(), view.shape.begin() + (rank_known ? view.rank : 0), ", "), shape_text(shape));
  check(view.data != nullptr, ErrorCode::bad_input, "{} {} has a null data pointer", name, shape_text(shape));
}

void check_absent(std::string_view name, const ConstTensorView& view, std::string_view why) {
  check(view.absent(), ErrorCode::bad_input, "{} is given, but {}; leave it out", name, why);
}

/// The five tensors of one projection.
struct Projection {
  std::string prefix;
  const ConstTensorView& codes;
  const ConstTensorView& scales;
  const ConstTensorView& zeros;
  const ConstTensorView& global;
  const ConstTensorView& bias;
};

void check_projection(const Projection& projection, const Caps& caps, std::int64_t rows, std::int64_t k, bool has_bias,
                      std::initializer_list<std::int64_t> global_shape) {
  const std::int64_t experts = caps.experts;
  const std::int64_t groups = groups_per_row(caps.format, k);
  const std::string& prefix = projection.prefix;
  check_tensor(prefix + "codes", projection.codes, {DType::u8}, {experts, rows, k / 2});
  switch (caps.format.format) {
    case WeightFormat::nvfp4:
      check_tensor(prefix + "scales", projection.scales, {DType::f8_e4m3}, {experts, rows, groups});
      break;
    case WeightFormat::mxfp4:
      check_tensor(prefix + "scales", projection.scales, {DType::u8, DType::f8_e8m0}, {experts, rows, groups});
      break;
    case WeightFormat::int4:
      check_tensor(prefix + "scales", projection.scales, {DType::bf16, DType::f16, DType::f32},
                   {experts, rows, groups});
      break;
    case WeightFormat::exl3:
      fail(ErrorCode::unsupported, "{}: exl3 experts cannot be prepared; use nvfp4, mxfp4 or int4", prefix);
  }
  if (caps.format.zero_points)
    check_tensor(prefix + "zeros", projection.zeros, {DType::u8}, {experts, rows, groups});
  else
    check_absent(prefix + "zeros", projection.zeros, "the format has no zero points");
  if (caps.format.format == WeightFormat::nvfp4)
    check_tensor(prefix + "global", projection.global, {DType::f32}, global_shape);
  else
    check_absent(prefix + "global", projection.global, "only nvfp4 has global scales");
  if (has_bias)
    check_tensor(prefix + "bias", projection.bias, {DType::bf16, DType::f16, DType::f32}, {experts, rows});
  else
    check_absent(prefix + "bias", projection.bias, "the caps promise no such bias");
}

/// Rows first, first + step, ... of a projection's expert.
struct RowPattern {
  std::int64_t first;
  std::int64_t step;
};

template <class T>
const T* advance(const ConstTensorView& view, std::int64_t bytes) {
  return reinterpret_cast<const T*>(static_cast<const std::byte*>(view.data) + bytes);
}

class StackedSource final : public ExpertSource {
 public:
  StackedSource(const StackedExperts& experts, const Caps& caps) : experts_(experts), caps_(caps) {}

  ExpertMatrices expert(std::int64_t index) override {
    check(index >= 0 && index < caps_.experts, ErrorCode::usage, "expert {} is outside 0 .. {}", index,
          caps_.experts - 1);
    ExpertMatrices result;
    const Projection gate_up = first_projection();
    const std::int64_t rows = caps_.gate_up_rows();
    if (!caps_.activation.gated()) {
      result.up = matrix(gate_up, index, rows, caps_.hidden, {0, 1}, global(gate_up, index));
    } else {
      const std::int64_t half = caps_.intermediate;
      const bool interleaved = experts_.order == GateUpOrder::interleaved;
      const bool gate_first = experts_.order != GateUpOrder::up_gate;
      const RowPattern gate = interleaved ? RowPattern{0, 2} : RowPattern{gate_first ? 0 : half, 1};
      const RowPattern up = interleaved ? RowPattern{1, 2} : RowPattern{gate_first ? half : 0, 1};
      result.gate = matrix(gate_up, index, rows, caps_.hidden, gate, global(gate_up, 2 * index));
      result.up = matrix(gate_up, index, rows, caps_.hidden, up, global(gate_up, 2 * index + 1));
    }
    const Projection down = second_projection();
    result.down = matrix(down, index, caps_.hidden, caps_.intermediate, {0, 1}, global(down, index));
    return result;
  }

  void check_all() const {
    const std::int64_t globals = caps_.activation.gated() ? 2 : 1;
    check_projection(first_projection(), caps_, caps_.gate_up_rows(), caps_.hidden, caps_.gate_up_bias,
                     {caps_.experts, globals});
    check_projection(second_projection(), caps_, caps_.hidden, caps_.intermediate, caps_.down_bias, {caps_.experts});
  }

 private:
  Projection first_projection() const {
    return {"gate_up_",
            experts_.gate_up_codes,
            experts_.gate_up_scales,
            experts_.gate_up_zeros,
            experts_.gate_up_global,
            experts_.gate_up_bias};
  }
  Projection second_projection() const {
    return {"down_",           experts_.down_codes, experts_.down_scales, experts_.down_zeros, experts_.down_global,
            experts_.down_bias};
  }

  static float global(const Projection& projection, std::int64_t index) {
    if (projection.global.absent()) return 1.0f;
    float value = 0;
    std::memcpy(&value, advance<std::byte>(projection.global, index * 4), sizeof value);  // may be unaligned
    return value;
  }

  // `rows` of the stacked tensor per expert, of which the pattern picks some. Sizes are bounded by the caps' rules:
  // experts * rows * k stays below 2^53.
  MatrixSource matrix(const Projection& projection, std::int64_t index, std::int64_t rows, std::int64_t k,
                      RowPattern pattern, float global_scale) const {
    const std::int64_t groups = groups_per_row(caps_.format, k);
    const std::int64_t first = index * rows + pattern.first;
    MatrixSource source;
    source.codes = advance<std::uint8_t>(projection.codes, first * (k / 2));
    source.codes_row_bytes = pattern.step * (k / 2);
    source.scale_dtype = projection.scales.dtype;
    const std::int64_t scale_bytes = groups * dtype_bits(source.scale_dtype) / 8;
    source.scales = advance<std::byte>(projection.scales, first * scale_bytes);
    source.scales_row_bytes = pattern.step * scale_bytes;
    if (!projection.zeros.absent()) {
      source.zeros = advance<std::uint8_t>(projection.zeros, first * groups);
      source.zeros_row_bytes = pattern.step * groups;
    }
    if (!projection.bias.absent()) {
      source.bias_dtype = projection.bias.dtype;
      const std::int64_t bias_bytes = dtype_bits(source.bias_dtype) / 8;
      source.bias = advance<std::byte>(projection.bias, first * bias_bytes);
      source.bias_stride_bytes = pattern.step * bias_bytes;
    }
    source.global_scale = global_scale;
    return source;
  }

  StackedExperts experts_;
  Caps caps_;
};

bool float16_or_32(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32; }

bool scale_dtype_fits(WeightFormat format, DType dtype) {
  switch (format) {
    case WeightFormat::nvfp4:
      return dtype == DType::f8_e4m3;
    case WeightFormat::mxfp4:
      return dtype == DType::u8 || dtype == DType::f8_e8m0;
    case WeightFormat::int4:
      return float16_or_32(dtype);
    case WeightFormat::exl3:
      return false;
  }
  return false;
}

void check_matrix(const MatrixSource& source, std::int64_t rows, std::int64_t k, const Caps& caps, bool has_bias,
                  const std::string& what) {
  const std::int64_t groups = groups_per_row(caps.format, k);
  check(source.codes != nullptr, ErrorCode::bad_input, "{}: codes are missing; expected [{}, {}] bytes", what, rows,
        k / 2);
  check(source.scales != nullptr, ErrorCode::bad_input, "{}: scales are missing; expected [{}, {}]", what, rows,
        groups);
  check(scale_dtype_fits(caps.format.format, source.scale_dtype), ErrorCode::bad_input,
        "{}: scales are {}, which {} does not have", what, dtype_text(source.scale_dtype),
        weight_format_name(caps.format.format));
  const auto check_stride = [&](std::string_view plane, std::int64_t got, std::int64_t least) {
    check(got >= least, ErrorCode::bad_input, "{}: rows of {} lie {} bytes apart, a row has {} bytes", what, plane, got,
          least);
  };
  check_stride("codes", source.codes_row_bytes, k / 2);
  check_stride("scales", source.scales_row_bytes, groups * dtype_bits(source.scale_dtype) / 8);
  check((source.zeros != nullptr) == caps.format.zero_points, ErrorCode::bad_input,
        "{}: zero points are {}, but the format has zero_points = {}", what,
        source.zeros != nullptr ? "given" : "missing", caps.format.zero_points);
  if (source.zeros != nullptr) check_stride("zero points", source.zeros_row_bytes, groups);
  check((source.bias != nullptr) == has_bias, ErrorCode::bad_input, "{}: a bias is {}, but the caps promise {}", what,
        source.bias != nullptr ? "given" : "missing", has_bias ? "one" : "none");
  if (source.bias != nullptr) {
    check(float16_or_32(source.bias_dtype), ErrorCode::bad_input, "{}: the bias is {}, expected BF16, F16 or F32", what,
          dtype_text(source.bias_dtype));
    check_stride("the bias", source.bias_stride_bytes, dtype_bits(source.bias_dtype) / 8);
  }
  check(caps.format.format == WeightFormat::nvfp4 || source.global_scale == 1.0f, ErrorCode::bad_input,
        "{}: global scale is {}, but only nvfp4 has one; pass 1", what, source.global_scale);
  check_scales(source, rows, k, caps.format, what);
}

}  // namespace

void check_expert(const ExpertMatrices& expert, std::int64_t index, const Caps& caps) {
  const auto what = [index](std::string_view matrix) { return fmt::format("expert {} {}", index, matrix); };
  if (caps.activation.gated())
    check_matrix(expert.gate, caps.intermediate, caps.hidden, caps, caps.gate_up_bias, what("gate"));
  else
    check(expert.gate.codes == nullptr, ErrorCode::bad_input, "{}: given, but {} has no gate; leave it empty",
          what("gate"), activation_name(caps.activation.kind));
  check_matrix(expert.up, caps.intermediate, caps.hidden, caps, caps.gate_up_bias, what("up"));
  check_matrix(expert.down, caps.hidden, caps.intermediate, caps, caps.down_bias, what("down"));
}

std::unique_ptr<ExpertSource> stacked_source(const StackedExperts& experts, const Caps& caps) {
  const std::string reason = caps_refusal(caps);
  check(reason.empty(), ErrorCode::unsupported, "{}", reason);
  check(experts.order <= GateUpOrder::interleaved, ErrorCode::bad_input,
        "order = {} is no row order; use gate_up, up_gate or interleaved", static_cast<int>(experts.order));
  auto source = std::make_unique<StackedSource>(experts, caps);
  source->check_all();
  return source;
}

}  // namespace fourfold
