// Makes the two matrices, the tokens, and the exact answer.
#include "support/one_hot.h"

#include <cstring>
#include <random>

#include "core/float16.h"
#include "oracle/moe_oracle.h"

namespace support {

using namespace fourfold;

namespace {

/// What a stored scale means, and the number of bytes of one.
std::int64_t scale_bytes(const FormatSpec& format) { return format.format == WeightFormat::int4 ? 2 : 1; }

double scale_value(const FormatSpec& format, const std::byte* scale) {
  std::uint16_t half = 0;
  std::memcpy(&half, scale, static_cast<std::size_t>(scale_bytes(format)));
  switch (format.format) {
    case WeightFormat::nvfp4:
      return oracle::decode_e4m3(static_cast<std::uint8_t>(half));
    case WeightFormat::mxfp4:
      return oracle::decode_e8m0(static_cast<std::uint8_t>(half));
    case WeightFormat::int4:
    case WeightFormat::exl3:  // runs nowhere
      break;
  }
  return oracle::decode_bf16(half);
}

/// A random scale; `squared`: the square of a weight must fit the dtype.
std::uint16_t random_scale(const Caps& caps, bool squared, std::mt19937_64& random) {
  const bool f16 = caps.activation_dtype == DType::f16;
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  switch (caps.format.format) {
    case WeightFormat::nvfp4:  // all bytes but NaN; of positive sign, at most 16 where 65504 is the end
      return static_cast<std::uint16_t>(between(1, f16 && squared ? 0x58 : 0x7e));
    case WeightFormat::mxfp4:
      if (squared) return static_cast<std::uint16_t>(f16 ? between(120, 132) : between(67, 187));
      return static_cast<std::uint16_t>(f16 ? between(115, 139) : between(3, 250));
    case WeightFormat::int4:
    case WeightFormat::exl3:
      break;
  }
  return float_to_bf16(static_cast<float>(0.0625 + static_cast<double>(random() % 65536) / 65536));
}

struct Shape {
  std::int64_t rows, columns;
};

void allocate(OneHotCall::Matrix& matrix, const Caps& caps, Shape shape) {
  const std::int64_t lines = caps.experts * shape.rows, groups = groups_per_row(caps.format, shape.columns);
  matrix.codes.assign(static_cast<std::size_t>(lines * shape.columns / 2), 0);
  matrix.scales.assign(static_cast<std::size_t>(lines * groups * scale_bytes(caps.format)), std::byte{0});
  matrix.zeros.assign(caps.format.zero_points ? static_cast<std::size_t>(lines * groups) : 0, 8);
  matrix.global.assign(caps.format.format == WeightFormat::nvfp4 ? static_cast<std::size_t>(caps.experts) : 0, 1.0f);
}

void put_code(OneHotCall::Matrix& matrix, std::int64_t index, unsigned code) {
  matrix.codes[static_cast<std::size_t>(index / 2)] |= static_cast<std::uint8_t>(code << (index % 2 * 4));
}

/// Ones on the diagonal; the other codes are zeros.
void fill_identity(OneHotCall::Matrix& matrix, const Caps& caps, Shape shape) {
  allocate(matrix, caps, shape);
  const bool int4 = caps.format.format == WeightFormat::int4;
  const std::uint16_t one = int4 ? 0x3f80 : caps.format.format == WeightFormat::nvfp4 ? 0x38 : 127;
  const auto width = static_cast<std::size_t>(scale_bytes(caps.format));
  for (std::size_t at = 0; at < matrix.scales.size(); at += width) std::memcpy(&matrix.scales[at], &one, width);
  for (std::int64_t line = 0; line < caps.experts * shape.rows; ++line)
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const bool on_diagonal = line % shape.rows == column;
      put_code(matrix, line * shape.columns + column, int4 ? (on_diagonal ? 9u : 8u) : (on_diagonal ? 2u : 0u));
    }
}

void fill_random(OneHotCall::Matrix& matrix, const Caps& caps, Shape shape, bool squared, std::mt19937_64& random) {
  allocate(matrix, caps, shape);
  for (std::uint8_t& byte : matrix.codes) byte = static_cast<std::uint8_t>(random());
  for (std::uint8_t& zero : matrix.zeros) zero = static_cast<std::uint8_t>(random() % 16);
  const auto width = static_cast<std::size_t>(scale_bytes(caps.format));
  for (std::size_t at = 0; at < matrix.scales.size(); at += width) {
    const std::uint16_t scale = random_scale(caps, squared, random);
    std::memcpy(&matrix.scales[at], &scale, width);
  }
  for (std::size_t i = 0; i < matrix.global.size(); ++i) matrix.global[i] = i % 2 == 0 ? 0.5f : 2.0f;
}

double weight(const OneHotCall::Matrix& matrix, const Caps& caps, Shape shape, std::int64_t expert, std::int64_t row,
              std::int64_t column) {
  const std::int64_t line = expert * shape.rows + row, groups = groups_per_row(caps.format, shape.columns);
  const std::int64_t size = caps.format.group_size == 0 ? shape.columns : caps.format.group_size;
  const std::int64_t group = line * groups + column / size, at = line * shape.columns + column;
  const unsigned code = matrix.codes[static_cast<std::size_t>(at / 2)] >> (at % 2 * 4) & 15u;
  const double scale = scale_value(caps.format, matrix.scales.data() + group * scale_bytes(caps.format));
  if (caps.format.format == WeightFormat::int4) {
    const int zero = matrix.zeros.empty() ? 8 : matrix.zeros[static_cast<std::size_t>(group)];
    return (static_cast<int>(code) - zero) * scale;
  }
  const double global = matrix.global.empty() ? 1 : matrix.global[static_cast<std::size_t>(expert)];
  return oracle::decode_e2m1(code) * scale * global;
}

void set_views(OneHotCall::Matrix& matrix, const Caps& caps, Shape shape, bool first, StackedExperts& experts) {
  const std::int64_t groups = groups_per_row(caps.format, shape.columns);
  const DType dtype = caps.format.format == WeightFormat::int4    ? DType::bf16
                      : caps.format.format == WeightFormat::nvfp4 ? DType::f8_e4m3
                                                                  : DType::u8;
  const ConstTensorView codes(matrix.codes.data(), DType::u8, {caps.experts, shape.rows, shape.columns / 2});
  const ConstTensorView scales(matrix.scales.data(), dtype, {caps.experts, shape.rows, groups});
  ConstTensorView zeros, global;
  if (!matrix.zeros.empty()) zeros = {matrix.zeros.data(), DType::u8, {caps.experts, shape.rows, groups}};
  if (!matrix.global.empty())
    global = first ? ConstTensorView(matrix.global.data(), DType::f32, {caps.experts, 1})
                   : ConstTensorView(matrix.global.data(), DType::f32, {caps.experts});
  (first ? experts.gate_up_codes : experts.down_codes) = codes;
  (first ? experts.gate_up_scales : experts.down_scales) = scales;
  (first ? experts.gate_up_zeros : experts.down_zeros) = zeros;
  (first ? experts.gate_up_global : experts.down_global) = global;
}

std::uint16_t rounded(double value, DType dtype) {
  const auto exact = static_cast<float>(value);
  return dtype == DType::f16 ? float_to_f16(exact) : float_to_bf16(exact);
}

/// A token for each expert, sign and position, and what it gives.
void fill_tokens(OneHotCall& call, Projection projection) {
  const Caps& caps = call.caps;
  const bool first = projection == Projection::gate_up;
  const Shape read = first ? Shape{caps.intermediate, caps.hidden} : Shape{caps.hidden, caps.intermediate};
  const std::int64_t signs = first ? 2 : 1, tokens = caps.experts * signs * read.columns;
  call.caps.max_tokens = tokens;
  call.x.assign(static_cast<std::size_t>(tokens * caps.hidden * 2), std::byte{0});
  call.expected = call.x;
  call.ids.resize(static_cast<std::size_t>(tokens * 4));
  call.weights.assign(static_cast<std::size_t>(tokens), 1.0f);
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto expert = static_cast<std::int32_t>(token % caps.experts);
    const std::int64_t sign = token / caps.experts % signs, column = token / caps.experts / signs;
    const std::uint16_t one = rounded(sign == 0 ? 1 : -1, caps.activation_dtype);
    std::memcpy(call.x.data() + (token * caps.hidden + column) * 2, &one, 2);
    std::memcpy(call.ids.data() + token * 4, &expert, 4);
    for (std::int64_t row = 0; row < read.rows; ++row) {
      double value = weight(first ? call.gate_up : call.down, caps, read, expert, row, column);
      if (first) {
        value = std::max(0.0, sign == 0 ? value : -value);
        value *= value;
      }
      std::uint16_t bits = rounded(value, caps.activation_dtype);
      if (bits == 0x8000) bits = 0;  // a sum that begins at +0 never gives -0
      std::memcpy(call.expected.data() + (token * caps.hidden + row) * 2, &bits, 2);
    }
  }
  call.tensors.x = ConstTensorView(call.x.data(), caps.activation_dtype, {tokens, caps.hidden});
  call.tensors.topk_ids = ConstTensorView(call.ids.data(), DType::i32, {tokens, 1});
  call.tensors.topk_weights = ConstTensorView(call.weights.data(), DType::f32, {tokens, 1});
}

}  // namespace

std::unique_ptr<OneHotCall> one_hot_call(const std::string& format_text, Projection projection, std::int64_t experts,
                                         std::int64_t hidden, std::int64_t intermediate, std::uint64_t seed) {
  auto call = std::make_unique<OneHotCall>();
  call->caps = caps_of("t1 k1 e" + std::to_string(experts) + " h" + std::to_string(hidden) + " i" +
                       std::to_string(intermediate) + " " + format_text + " relu2");
  std::mt19937_64 random(seed);
  const Shape first{intermediate, hidden}, second{hidden, intermediate};
  const bool reads_first = projection == Projection::gate_up;
  if (reads_first) {
    fill_random(call->gate_up, call->caps, first, true, random);
    fill_identity(call->down, call->caps, second);
  } else {
    fill_identity(call->gate_up, call->caps, first);
    fill_random(call->down, call->caps, second, false, random);
  }
  fill_tokens(*call, projection);
  set_views(call->gate_up, call->caps, first, true, call->experts);
  set_views(call->down, call->caps, second, false, call->experts);
  return call;
}

}  // namespace support
