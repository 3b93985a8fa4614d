// Nibble by nibble from GPTQ, AWQ and compressed-tensors to rows of codes, and back (layouts in expert_layouts.h).
#include "formats/expert_layouts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>

#include "core/check.h"
#include "core/float16.h"
#include "formats/format.h"
#include "formats/fp4.h"

namespace fourfold {
namespace {

constexpr std::int64_t kNibbles = 8;  // of an int32 word
// Output of nibble i within its word of 8 columns (AutoAWQ's pack order).
constexpr std::array<int, kNibbles> kAwqOrder{0, 2, 4, 6, 1, 3, 5, 7};
constexpr std::array<int, kNibbles> kPlainOrder{0, 1, 2, 3, 4, 5, 6, 7};

std::uint32_t load_word(const void* base, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, static_cast<const unsigned char*>(base) + index * 4, 4);
  return word;
}

std::uint8_t nibble(std::uint32_t word, int index) { return static_cast<std::uint8_t>(word >> (4 * index) & 15u); }

std::string shape_text(const ConstTensorView& view) {
  std::string text = "[";
  for (int axis = 0; axis < view.rank; ++axis) text += fmt::format("{}{}", axis > 0 ? ", " : "", view.shape[axis]);
  return text + "]";
}

// Error texts start with the matrix's name and the tensor's.
struct TensorName {
  std::string_view matrix;
  const char* tensor;
};

void check_dtype(const ConstTensorView& view, std::initializer_list<DType> allowed, const TensorName& name) {
  if (std::find(allowed.begin(), allowed.end(), view.dtype) != allowed.end()) return;
  std::string list;
  for (DType dtype : allowed) list += (list.empty() ? "" : ", ") + std::string(dtype_name(dtype));
  fail(ErrorCode::bad_input, "{}: {} has dtype {}; allowed: {}", name.matrix, name.tensor, dtype_name(view.dtype),
       list);
}

void check_matrix(const ConstTensorView& view, const TensorName& name) {
  check(!view.absent(), ErrorCode::bad_input, "{}: {} is missing", name.matrix, name.tensor);
  check(view.rank == 2 && view.shape[0] > 0 && view.shape[1] > 0, ErrorCode::bad_input,
        "{}: {} has shape {}; a matrix with positive extents is needed", name.matrix, name.tensor, shape_text(view));
  // Room for every size that is computed from it: positions, nibbles, bytes of scales.
  constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 64;
  check(view.shape[0] <= kMaxElements / view.shape[1], ErrorCode::bad_input,
        "{}: {} has shape {}, whose product is no size in memory", name.matrix, name.tensor, shape_text(view));
}

void check_shape(const ConstTensorView& view, std::int64_t rows, std::int64_t columns, const TensorName& name) {
  check_matrix(view, name);
  check(view.shape[0] == rows && view.shape[1] == columns, ErrorCode::bad_input,
        "{}: {} has shape {}; [{}, {}] was expected from the other tensors and the group size", name.matrix,
        name.tensor, shape_text(view), rows, columns);
}

constexpr std::initializer_list<DType> kScaleDTypes{DType::f16, DType::bf16, DType::f32};

// Rows of codes of 0; scales and zero points sized. `n` and `k` are checked by the caller.
QuantizedMatrix empty_matrix(std::int64_t n, std::int64_t k, const FormatSpec& spec, DType scale_dtype) {
  QuantizedMatrix matrix;
  matrix.rows = n;
  matrix.k = k;
  matrix.spec = spec;
  matrix.scale_dtype = scale_dtype;
  const std::int64_t groups = groups_per_row(spec, k);
  matrix.codes.resize(static_cast<std::size_t>(n * (k / 2)));
  matrix.scales.resize(static_cast<std::size_t>(n * groups * dtype_bits(scale_dtype) / 8));
  if (spec.zero_points) matrix.zeros.assign(static_cast<std::size_t>(n * groups), 8);
  return matrix;
}

void put_code(QuantizedMatrix& matrix, std::int64_t row, std::int64_t position, std::uint8_t code) {
  std::uint8_t& byte = matrix.codes[static_cast<std::size_t>(row * (matrix.k / 2) + position / 2)];
  byte = static_cast<std::uint8_t>(byte | code << (position % 2 * 4));
}

// [groups, N] -> [N, groups], elements of the scale dtype.
void transpose_scales(const ConstTensorView& scales, QuantizedMatrix& matrix) {
  const std::int64_t groups = scales.shape[0], n = scales.shape[1], width = dtype_bits(scales.dtype) / 8;
  const auto* from = static_cast<const unsigned char*>(scales.data);
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t row = 0; row < n; ++row)
      std::memcpy(matrix.scales.data() + (row * groups + group) * width, from + (group * n + row) * width,
                  static_cast<std::size_t>(width));
}

// qzeros [groups, N / 8], one nibble per output in `order`; `add` is added modulo 16.
void unpack_column_zeros(const ConstTensorView& qzeros, const std::array<int, kNibbles>& order, int add,
                         QuantizedMatrix& matrix) {
  const std::int64_t groups = qzeros.shape[0], columns = qzeros.shape[1];
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::uint32_t word = load_word(qzeros.data, group * columns + column);
      for (int i = 0; i < kNibbles; ++i)
        matrix.zeros[static_cast<std::size_t>((column * kNibbles + order[i]) * groups + group)] =
            static_cast<std::uint8_t>((nibble(word, i) + add) & 15);
    }
}

// What GPTQ and AWQ share: K is split into whole groups, zero points are packed along N.
void check_grouping(std::int64_t n, std::int64_t k, const FormatSpec& spec, std::string_view name) {
  if (const std::string reason = format_refusal(spec); !reason.empty())
    fail(ErrorCode::unsupported, "{}: {}", name, reason);
  check(n % kNibbles == 0, ErrorCode::bad_input, "{}: N is {}; this layout needs a multiple of 8", name, n);
  check(k % 2 == 0, ErrorCode::unsupported, "{}: K is {}; an even number is needed", name, k);
  check(k % group_length(spec, k) == 0, ErrorCode::unsupported,
        "{}: K is {}, which groups of {} do not divide; this layout has no short last group", name, k, spec.group_size);
}

void check_group_order(const ConstTensorView& g_idx, std::int64_t k, std::int64_t group, std::string_view name) {
  if (g_idx.absent()) return;
  check_dtype(g_idx, {DType::i32}, {name, "g_idx"});
  check(g_idx.rank == 1 && g_idx.shape[0] == k, ErrorCode::bad_input, "{}: g_idx has shape {}; [{}] was expected", name,
        shape_text(g_idx), k);
  for (std::int64_t position = 0; position < k; ++position) {
    const auto found = static_cast<std::int32_t>(load_word(g_idx.data, position));
    check(found == position / group, ErrorCode::unsupported,
          "{}: g_idx[{}] is {}, in order it would be {}: act-order (desc_act) is not supported; quantise without it",
          name, position, found, position / group);
  }
}

}  // namespace

QuantizedMatrix from_gptq(const GptqTensors& tensors, std::int64_t group_size, GptqZeros zeros, std::string_view name) {
  check_matrix(tensors.qweight, {name, "qweight"});
  check_dtype(tensors.qweight, {DType::i32}, {name, "qweight"});
  const std::int64_t words = tensors.qweight.shape[0], n = tensors.qweight.shape[1], k = words * kNibbles;
  const FormatSpec spec = FormatSpec::int4(group_size, true);
  check_grouping(n, k, spec, name);
  const std::int64_t groups = groups_per_row(spec, k);
  check_shape(tensors.scales, groups, n, {name, "scales"});
  check_dtype(tensors.scales, kScaleDTypes, {name, "scales"});
  check_group_order(tensors.g_idx, k, group_length(spec, k), name);

  QuantizedMatrix matrix = empty_matrix(n, k, spec, tensors.scales.dtype);
  for (std::int64_t word_row = 0; word_row < words; ++word_row)
    for (std::int64_t row = 0; row < n; ++row) {
      const std::uint32_t word = load_word(tensors.qweight.data, word_row * n + row);
      for (int i = 0; i < kNibbles; ++i) put_code(matrix, row, word_row * kNibbles + i, nibble(word, i));
    }
  transpose_scales(tensors.scales, matrix);
  if (!tensors.qzeros.absent()) {
    check_shape(tensors.qzeros, groups, n / kNibbles, {name, "qzeros"});
    check_dtype(tensors.qzeros, {DType::i32}, {name, "qzeros"});
    unpack_column_zeros(tensors.qzeros, kPlainOrder, zeros == GptqZeros::minus_one ? 1 : 0, matrix);
  }
  return matrix;
}

QuantizedMatrix from_awq(const AwqTensors& tensors, std::int64_t group_size, std::string_view name) {
  check_matrix(tensors.qweight, {name, "qweight"});
  check_dtype(tensors.qweight, {DType::i32}, {name, "qweight"});
  const std::int64_t k = tensors.qweight.shape[0], columns = tensors.qweight.shape[1], n = columns * kNibbles;
  const FormatSpec spec = FormatSpec::int4(group_size, true);
  check_grouping(n, k, spec, name);
  const std::int64_t groups = groups_per_row(spec, k);
  check_shape(tensors.scales, groups, n, {name, "scales"});
  check_dtype(tensors.scales, kScaleDTypes, {name, "scales"});

  QuantizedMatrix matrix = empty_matrix(n, k, spec, tensors.scales.dtype);
  for (std::int64_t position = 0; position < k; ++position)
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::uint32_t word = load_word(tensors.qweight.data, position * columns + column);
      for (int i = 0; i < kNibbles; ++i) put_code(matrix, column * kNibbles + kAwqOrder[i], position, nibble(word, i));
    }
  transpose_scales(tensors.scales, matrix);
  if (!tensors.qzeros.absent()) {
    check_shape(tensors.qzeros, groups, columns, {name, "qzeros"});
    check_dtype(tensors.qzeros, {DType::i32}, {name, "qzeros"});
    unpack_column_zeros(tensors.qzeros, kAwqOrder, 0, matrix);
  }
  return matrix;
}

namespace {

// N and K of a compressed-tensors matrix: weight_shape where it is there, checked against weight_packed.
std::int64_t compressed_k(const CompressedInt4Tensors& tensors, std::string_view name) {
  const std::int64_t n = tensors.weight_packed.shape[0], words = tensors.weight_packed.shape[1];
  const ConstTensorView& shape = tensors.weight_shape;
  if (shape.absent()) return words * kNibbles;
  check_dtype(shape, {DType::i64, DType::i32}, {name, "weight_shape"});
  check(shape.rank == 1 && shape.shape[0] == 2, ErrorCode::bad_input, "{}: weight_shape has shape {}; [2] was expected",
        name, shape_text(shape));
  std::int64_t stated[2];
  for (int i = 0; i < 2; ++i) {
    if (shape.dtype == DType::i64)
      std::memcpy(&stated[i], static_cast<const unsigned char*>(shape.data) + 8 * i, 8);
    else
      stated[i] = static_cast<std::int32_t>(load_word(shape.data, i));
  }
  check(stated[0] == n && stated[1] > 0 && ceil_div(stated[1], kNibbles) == words, ErrorCode::bad_input,
        "{}: weight_shape says [{}, {}], but weight_packed has shape {}; [N, ceil(K / 8)] was expected", name,
        stated[0], stated[1], shape_text(tensors.weight_packed));
  return stated[1];
}

}  // namespace

QuantizedMatrix from_compressed_int4(const CompressedInt4Tensors& tensors, std::int64_t group_size,
                                     std::string_view name) {
  check_matrix(tensors.weight_packed, {name, "weight_packed"});
  check_dtype(tensors.weight_packed, {DType::i32}, {name, "weight_packed"});
  const std::int64_t n = tensors.weight_packed.shape[0], words = tensors.weight_packed.shape[1];
  const std::int64_t k = compressed_k(tensors, name);
  const FormatSpec spec = FormatSpec::int4(group_size, !tensors.weight_zero_point.absent());
  if (const std::string reason = format_refusal(spec); !reason.empty())
    fail(ErrorCode::unsupported, "{}: {}", name, reason);
  check(k % 2 == 0, ErrorCode::unsupported, "{}: K is {}; an even number is needed", name, k);
  const std::int64_t groups = groups_per_row(spec, k);
  check_shape(tensors.weight_scale, n, groups, {name, "weight_scale"});
  check_dtype(tensors.weight_scale, kScaleDTypes, {name, "weight_scale"});

  QuantizedMatrix matrix = empty_matrix(n, k, spec, tensors.weight_scale.dtype);
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t position = 0; position < k; ++position) {
      const std::uint32_t word = load_word(tensors.weight_packed.data, row * words + position / kNibbles);
      put_code(matrix, row, position, nibble(word, static_cast<int>(position % kNibbles)));
    }
  std::memcpy(matrix.scales.data(), tensors.weight_scale.data, matrix.scales.size());
  if (spec.zero_points) {
    check_shape(tensors.weight_zero_point, ceil_div(n, kNibbles), groups, {name, "weight_zero_point"});
    check_dtype(tensors.weight_zero_point, {DType::i32}, {name, "weight_zero_point"});
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::uint32_t word = load_word(tensors.weight_zero_point.data, row / kNibbles * groups + group);
        matrix.zeros[static_cast<std::size_t>(row * groups + group)] = nibble(word, static_cast<int>(row % kNibbles));
      }
  }
  return matrix;
}

std::vector<std::int32_t> compressed_int4_codes(const QuantizedMatrix& matrix) {
  check(matrix.spec.format == WeightFormat::int4, ErrorCode::unsupported,
        "only int4 matrices have a pack-quantized form, not {}", weight_format_name(matrix.spec.format));
  const std::int64_t words = ceil_div(matrix.k, kNibbles), row_bytes = matrix.k / 2;
  std::vector<std::int32_t> packed(static_cast<std::size_t>(matrix.rows * words));
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t word_index = 0; word_index < words; ++word_index) {
      // Low nibble = even k holds within a byte, and little-endian bytes within a word: the codes are a copy.
      std::uint32_t word = 0;
      for (std::int64_t byte = 0; byte < std::min<std::int64_t>(4, row_bytes - 4 * word_index); ++byte)
        word |=
            static_cast<std::uint32_t>(matrix.codes[static_cast<std::size_t>(row * row_bytes + 4 * word_index + byte)])
            << (8 * byte);
      packed[static_cast<std::size_t>(row * words + word_index)] = static_cast<std::int32_t>(word);
    }
  return packed;
}

std::vector<std::int32_t> compressed_int4_zeros(const QuantizedMatrix& matrix) {
  check(matrix.spec.format == WeightFormat::int4 && matrix.spec.zero_points, ErrorCode::unsupported,
        "only int4 matrices with zero points have a weight_zero_point");
  const std::int64_t groups = groups_per_row(matrix.spec, matrix.k);
  std::vector<std::int32_t> packed(static_cast<std::size_t>(ceil_div(matrix.rows, kNibbles) * groups));
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t group = 0; group < groups; ++group) {
      std::int32_t& word = packed[static_cast<std::size_t>(row / kNibbles * groups + group)];
      const std::uint32_t zero = matrix.zeros[static_cast<std::size_t>(row * groups + group)] & 15u;
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | zero << (4 * (row % kNibbles)));
    }
  return packed;
}

bool drop_symmetric_zero_points(QuantizedMatrix& matrix) {
  if (!matrix.spec.zero_points) return true;
  if (std::any_of(matrix.zeros.begin(), matrix.zeros.end(), [](std::uint8_t zero) { return zero != 8; })) return false;
  matrix.zeros.clear();
  matrix.spec.zero_points = false;
  return true;
}

void dequantize_fp8_blocks(const ConstTensorView& weight, const ConstTensorView& scale, std::int64_t block_rows,
                           std::int64_t block_columns, std::span<float> out, std::string_view name) {
  check(block_rows > 0 && block_columns > 0, ErrorCode::bad_input,
        "{}: the block size is [{}, {}]; both must be positive", name, block_rows, block_columns);
  check_matrix(weight, {name, "weight"});
  check_dtype(weight, {DType::f8_e4m3}, {name, "weight"});
  const std::int64_t n = weight.shape[0], k = weight.shape[1];
  const std::int64_t scale_columns = ceil_div(k, block_columns);
  check_shape(scale, ceil_div(n, block_rows), scale_columns, {name, "weight_scale_inv"});
  check_dtype(scale, {DType::f32, DType::bf16}, {name, "weight_scale_inv"});
  check(static_cast<std::int64_t>(out.size()) == n * k, ErrorCode::internal,
        "{}: room for {} weights, {} x {} are needed", name, out.size(), n, k);
  const auto* bytes = static_cast<const std::uint8_t*>(weight.data);
  const auto* scale_bytes = static_cast<const unsigned char*>(scale.data);
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t block = 0; block < scale_columns; ++block) {
      const std::int64_t index = row / block_rows * scale_columns + block;
      float factor = 0;
      if (scale.dtype == DType::f32) {
        factor = std::bit_cast<float>(load_word(scale_bytes, index));
      } else {
        std::uint16_t bits;
        std::memcpy(&bits, scale_bytes + 2 * index, 2);
        factor = bf16_to_float(bits);
      }
      const std::int64_t end = std::min((block + 1) * block_columns, k);
      for (std::int64_t column = block * block_columns; column < end; ++column)
        out[static_cast<std::size_t>(row * k + column)] = e4m3_value(bytes[row * k + column]) * factor;
    }
}

}  // namespace fourfold
