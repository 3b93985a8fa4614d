// Public layouts packed here nibble by nibble, read back, and compared code by code (bug-log BL-28).
#include "formats/expert_layouts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/float16.h"
#include "fourfold/error.h"
#include "oracle/format_oracle.h"

namespace fourfold {
namespace {

/// A matrix [n, k] as plain integers: the truth that the layouts encode.
struct Plain {
  std::int64_t n, k, group;           // group: positions
  std::vector<int> codes, zeros;      // [n, k], [n, groups]
  std::vector<std::uint16_t> scales;  // [n, groups] f16 bits
  std::int64_t groups() const { return (k + group - 1) / group; }
  int code(std::int64_t row, std::int64_t position) const {
    return codes[static_cast<std::size_t>(row * k + position)];
  }
  int zero(std::int64_t row, std::int64_t g) const { return zeros[static_cast<std::size_t>(row * groups() + g)]; }
};

// All 16 codes and all 16 zero points occur.
Plain plain_matrix(std::int64_t n, std::int64_t k, std::int64_t group) {
  Plain plain{n, k, group, {}, {}, {}};
  std::mt19937 random(17);
  for (std::int64_t i = 0; i < n * k; ++i) plain.codes.push_back(static_cast<int>(i < 16 ? i : random() % 16));
  for (std::int64_t i = 0; i < n * plain.groups(); ++i) {
    plain.zeros.push_back(static_cast<int>(i < 16 ? i : random() % 16));
    plain.scales.push_back(float_to_f16(std::ldexp(1.0f + static_cast<float>(random() % 512) / 512.0f, -6)));
  }
  return plain;
}

/// A tensor that starts at an odd address, as the safetensors format allows.
struct Tensor {
  std::vector<unsigned char> memory;
  DType dtype;
  std::int64_t rows, columns;
  template <class T>
  Tensor(const std::vector<T>& values, DType dtype_in, std::int64_t rows_in, std::int64_t columns_in)
      : memory(values.size() * sizeof(T) + 1), dtype(dtype_in), rows(rows_in), columns(columns_in) {
    std::memcpy(memory.data() + 1, values.data(), values.size() * sizeof(T));
  }
  ConstTensorView view() const { return {memory.data() + 1, dtype, {rows, columns}}; }
  ConstTensorView flat() const { return {memory.data() + 1, dtype, {rows * columns}}; }
};

// `order[i]` is the place within a word of eight that nibble i holds; place(word, j) gives the value there.
template <class Value>
std::vector<std::uint32_t> pack(std::int64_t words, const std::vector<int>& order, Value value) {
  std::vector<std::uint32_t> packed(static_cast<std::size_t>(words));
  for (std::int64_t word = 0; word < words; ++word)
    for (std::size_t i = 0; i < 8; ++i)
      packed[static_cast<std::size_t>(word)] |= static_cast<std::uint32_t>(value(word, order[i]) & 15) << (4 * i);
  return packed;
}

const std::vector<int> kPlainOrder{0, 1, 2, 3, 4, 5, 6, 7}, kAwqOrder{0, 2, 4, 6, 1, 3, 5, 7};

Tensor transposed_scales(const Plain& p) {
  std::vector<std::uint16_t> scales;
  for (std::int64_t g = 0; g < p.groups(); ++g)
    for (std::int64_t row = 0; row < p.n; ++row)
      scales.push_back(p.scales[static_cast<std::size_t>(row * p.groups() + g)]);
  return {scales, DType::f16, p.groups(), p.n};
}

Tensor packed_zeros(const Plain& p, const std::vector<int>& order, int minus) {
  const std::int64_t columns = p.n / 8;
  return {pack(p.groups() * columns, order,
               [&](std::int64_t w, int j) { return p.zero(w % columns * 8 + j, w / columns) - minus; }),
          DType::i32, p.groups(), columns};
}

struct Gptq {
  Tensor qweight, qzeros, scales;
  explicit Gptq(const Plain& p, int minus = 1)
      : qweight(
            pack(p.k / 8 * p.n, kPlainOrder, [&](std::int64_t w, int j) { return p.code(w % p.n, w / p.n * 8 + j); }),
            DType::i32, p.k / 8, p.n),
        qzeros(packed_zeros(p, kPlainOrder, minus)),
        scales(transposed_scales(p)) {}
  GptqTensors tensors() const { return {qweight.view(), qzeros.view(), scales.view(), {}}; }
};

struct Awq {
  Tensor qweight, qzeros, scales;
  explicit Awq(const Plain& p)
      : qweight(pack(p.k * p.n / 8, kAwqOrder,
                     [&](std::int64_t w, int j) { return p.code(w % (p.n / 8) * 8 + j, w / (p.n / 8)); }),
                DType::i32, p.k, p.n / 8),
        qzeros(packed_zeros(p, kAwqOrder, 0)),
        scales(transposed_scales(p)) {}
  AwqTensors tensors() const { return {qweight.view(), qzeros.view(), scales.view()}; }
};

struct Compressed {
  Tensor packed, zero_point, scale, shape;
  explicit Compressed(const Plain& p)
      : packed(pack(p.n * ((p.k + 7) / 8), kPlainOrder,
                    [&](std::int64_t w, int j) {
                      const std::int64_t words = (p.k + 7) / 8, position = w % words * 8 + j;
                      return position < p.k ? p.code(w / words, position) : 0;
                    }),
               DType::i32, p.n, (p.k + 7) / 8),
        zero_point(pack((p.n + 7) / 8 * p.groups(), kPlainOrder,
                        [&](std::int64_t w, int j) {
                          const std::int64_t row = w / p.groups() * 8 + j;
                          return row < p.n ? p.zero(row, w % p.groups()) : 0;
                        }),
                   DType::i32, (p.n + 7) / 8, p.groups()),
        scale(p.scales, DType::f16, p.n, p.groups()),
        shape(std::vector<std::int64_t>{p.n, p.k}, DType::i64, 1, 2) {}
  CompressedInt4Tensors tensors() const { return {packed.view(), scale.view(), zero_point.view(), shape.flat()}; }
};

void expect_same(const QuantizedMatrix& got, const Plain& p) {
  ASSERT_EQ(got.rows, p.n);
  ASSERT_EQ(got.k, p.k);
  ASSERT_EQ(got.scale_dtype, DType::f16);
  ASSERT_EQ(got.scales.size(), p.scales.size() * 2);
  EXPECT_EQ(std::memcmp(got.scales.data(), p.scales.data(), got.scales.size()), 0);
  ASSERT_EQ(got.zeros.size(), p.zeros.size());
  for (std::size_t i = 0; i < p.zeros.size(); ++i) ASSERT_EQ(got.zeros[i], p.zeros[i]) << "zero point " << i;
  ASSERT_EQ(got.codes.size() * 2, p.codes.size());
  for (std::size_t i = 0; i < p.codes.size(); ++i)
    ASSERT_EQ(got.codes[i / 2] >> (i % 2 * 4) & 15, p.codes[i]) << "code " << i;
}

template <class Call>
std::string refusal(ErrorCode code, Call call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("experts.0.up", 0), 0u) << error.what();
    return error.what();
  }
}
constexpr const char* kName = "experts.0.up";

TEST(Gptq, EveryCodeAndZeroPointSurvives) {
  for (const std::int64_t group : {16, 32, 64}) {
    const Plain p = plain_matrix(24, 64, group);
    const Gptq v1(p, 1), v2(p, 0);
    expect_same(from_gptq(v1.tensors(), group, GptqZeros::minus_one, kName), p);
    expect_same(from_gptq(v2.tensors(), group, GptqZeros::plain, kName), p);
  }
}

TEST(Gptq, WholeRowGroupsAreGroupZero) {
  const Plain p = plain_matrix(16, 40, 40);
  const QuantizedMatrix got = from_gptq(Gptq(p).tensors(), 0, GptqZeros::minus_one, kName);
  expect_same(got, p);
  EXPECT_EQ(got.spec, FormatSpec::int4(0, true));
}

TEST(Gptq, GroupIndexInOrderIsAcceptedAndActOrderRefusedByName) {
  const Plain p = plain_matrix(16, 64, 32);
  const Gptq gptq(p);
  std::vector<std::int32_t> index(64);
  for (std::size_t i = 0; i < 64; ++i) index[i] = static_cast<std::int32_t>(i / 32);
  GptqTensors tensors = gptq.tensors();
  const Tensor ordered(index, DType::i32, 1, 64);
  tensors.g_idx = ordered.flat();
  expect_same(from_gptq(tensors, 32, GptqZeros::minus_one, kName), p);
  std::swap(index[3], index[40]);
  const Tensor shuffled(index, DType::i32, 1, 64);
  tensors.g_idx = shuffled.flat();
  const std::string text =
      refusal(ErrorCode::unsupported, [&] { from_gptq(tensors, 32, GptqZeros::minus_one, kName); });
  EXPECT_NE(text.find("act-order"), std::string::npos) << text;
  EXPECT_NE(text.find("g_idx[3] is 1"), std::string::npos) << text;
}

// Tensor parallelism cuts N or K; a cut along K must use the K of the part (BL-28).
TEST(Gptq, ShardsReadAsTheSlicesOfTheWhole) {
  const Plain whole = plain_matrix(64, 256, 32);
  int compared = 0;
  for (const std::int64_t shards : {1, 2, 4, 8})
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      Plain part{whole.n / shards, whole.k, 32, {}, {}, {}};  // along N: rows are contiguous
      const auto slice = [&](const auto& v) {
        const auto size = static_cast<std::ptrdiff_t>(v.size()) / shards;
        return std::remove_cvref_t<decltype(v)>(v.begin() + shard * size, v.begin() + (shard + 1) * size);
      };
      part.codes = slice(whole.codes);
      part.zeros = slice(whole.zeros);
      part.scales = slice(whole.scales);
      expect_same(from_gptq(Gptq(part).tensors(), 32, GptqZeros::minus_one, kName), part);

      Plain along_k{whole.n, whole.k / shards, 32, {}, {}, {}};
      for (std::int64_t row = 0; row < whole.n; ++row) {
        for (std::int64_t k = 0; k < along_k.k; ++k) along_k.codes.push_back(whole.code(row, shard * along_k.k + k));
        for (std::int64_t g = 0; g < along_k.groups(); ++g) {
          along_k.zeros.push_back(whole.zero(row, shard * along_k.groups() + g));
          along_k.scales.push_back(
              whole.scales[static_cast<std::size_t>(row * whole.groups() + shard * along_k.groups() + g)]);
        }
      }
      expect_same(from_gptq(Gptq(along_k).tensors(), 32, GptqZeros::minus_one, kName), along_k);
      ++compared;
    }
  EXPECT_EQ(compared, 15);
}

TEST(Gptq, ShapesAndDTypesThatDisagreeAreRefusedByTensor) {
  const Plain p = plain_matrix(16, 64, 32);
  const Gptq gptq(p);
  const auto text_of = [&](auto change, std::int64_t group, ErrorCode code = ErrorCode::bad_input) {
    GptqTensors tensors = gptq.tensors();
    change(tensors);
    return refusal(code, [&] { from_gptq(tensors, group, GptqZeros::minus_one, kName); });
  };
  EXPECT_NE(text_of([](auto&) {}, 64).find("scales has shape [2, 16]; [1, 16]"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.qzeros.shape[1] = 3; }, 32).find("qzeros"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.scales.dtype = DType::u8; }, 32).find("scales has dtype U8"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.qweight.dtype = DType::f32; }, 32).find("qweight has dtype F32"),
            std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.qweight = {}; }, 32).find("qweight is missing"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.scales = {}; }, 32).find("scales is missing"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.qweight.shape[1] = 15; }, 32).find("multiple of 8"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.qweight.shape[0] = 0; }, 32).find("qweight"), std::string::npos);
  EXPECT_NE(text_of([](auto& t) { t.qweight.shape[0] = std::int64_t{1} << 61; }, 32).find("qweight"),
            std::string::npos);
  EXPECT_NE(text_of([](auto&) {}, 48, ErrorCode::unsupported).find("48"), std::string::npos);
  EXPECT_NE(text_of([](auto&) {}, 128, ErrorCode::unsupported).find("do not divide"), std::string::npos);
}

TEST(Gptq, MissingZeroPointsMeanEight) {
  Plain p = plain_matrix(16, 64, 32);
  std::fill(p.zeros.begin(), p.zeros.end(), 8);
  const Gptq gptq(p);
  GptqTensors tensors = gptq.tensors();
  tensors.qzeros = {};
  expect_same(from_gptq(tensors, 32, GptqZeros::minus_one, kName), p);
}

TEST(Awq, EveryCodeAndZeroPointSurvives) {
  for (const std::int64_t group : {16, 32, 64}) {
    const Plain p = plain_matrix(24, 64, group);
    const Awq awq(p);
    expect_same(from_awq(awq.tensors(), group, kName), p);
  }
}

// The order as AutoAWQ writes it, spelled out for one word.
TEST(Awq, NibblesAreInterleaved) {
  const std::vector<std::uint32_t> word{0x76543210, 0};
  const Tensor qweight(word, DType::i32, 2, 1), scales(std::vector<std::uint16_t>(8, 0x3c00), DType::f16, 1, 8);
  const QuantizedMatrix got = from_awq({qweight.view(), {}, scales.view()}, 0, kName);
  const int nibble_of_row[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (std::size_t row = 0; row < 8; ++row) EXPECT_EQ(got.codes[row], nibble_of_row[row]) << row;
}

TEST(Awq, ShapesThatDisagreeAreRefused) {
  const Plain p = plain_matrix(16, 64, 32);
  const Awq awq(p);
  AwqTensors tensors = awq.tensors();
  tensors.scales.shape[1] = 24;
  refusal(ErrorCode::bad_input, [&] { from_awq(tensors, 32, kName); });
  tensors = awq.tensors();
  tensors.qzeros.shape[0] = 3;
  refusal(ErrorCode::bad_input, [&] { from_awq(tensors, 32, kName); });
  tensors = awq.tensors();
  tensors.qweight.shape[0] = 63;
  refusal(ErrorCode::unsupported, [&] { from_awq(tensors, 32, kName); });
}

struct Extent {
  std::int64_t n, k, group;
};
class CompressedInt4 : public testing::TestWithParam<Extent> {};
INSTANTIATE_TEST_SUITE_P(Shapes, CompressedInt4,
                         testing::Values(Extent{24, 64, 32}, Extent{11, 96, 128}, Extent{16, 104, 32},
                                         Extent{9, 76, 16}, Extent{1, 264, 256}));

TEST_P(CompressedInt4, EveryCodeAndZeroPointSurvives) {
  const Plain p = plain_matrix(GetParam().n, GetParam().k, GetParam().group);
  const Compressed compressed(p);
  expect_same(from_compressed_int4(compressed.tensors(), GetParam().group, kName), p);
}

TEST_P(CompressedInt4, WritingGivesTheWordsThatWereRead) {
  const Plain p = plain_matrix(GetParam().n, GetParam().k, GetParam().group);
  const Compressed compressed(p);
  const QuantizedMatrix matrix = from_compressed_int4(compressed.tensors(), GetParam().group, kName);
  const std::vector<std::int32_t> codes = compressed_int4_codes(matrix), zeros = compressed_int4_zeros(matrix);
  ASSERT_EQ(codes.size() * 4 + 1, compressed.packed.memory.size());
  EXPECT_EQ(std::memcmp(codes.data(), compressed.packed.memory.data() + 1, codes.size() * 4), 0);
  ASSERT_EQ(zeros.size() * 4 + 1, compressed.zero_point.memory.size());
  EXPECT_EQ(std::memcmp(zeros.data(), compressed.zero_point.memory.data() + 1, zeros.size() * 4), 0);
}

TEST(CompressedInt4Layout, WithoutZeroPointsTheFormatIsSymmetric) {
  const Plain p = plain_matrix(16, 64, 32);
  const Compressed compressed(p);
  CompressedInt4Tensors tensors = compressed.tensors();
  tensors.weight_zero_point = {};
  const QuantizedMatrix matrix = from_compressed_int4(tensors, 32, kName);
  EXPECT_EQ(matrix.spec, FormatSpec::int4(32));
  EXPECT_TRUE(matrix.zeros.empty());
  EXPECT_THROW(compressed_int4_zeros(matrix), Error);
}

TEST(CompressedInt4Layout, ShapeTensorMustAgree) {
  const Plain p = plain_matrix(16, 64, 32);
  const Compressed compressed(p);
  for (const std::vector<std::int64_t>& stated :
       {std::vector<std::int64_t>{16, 56}, {16, 72}, {15, 64}, {16, -64}, {16, 0}}) {
    const Tensor shape(stated, DType::i64, 1, 2);
    CompressedInt4Tensors tensors = compressed.tensors();
    tensors.weight_shape = shape.flat();
    const std::string text = refusal(ErrorCode::bad_input, [&] { from_compressed_int4(tensors, 32, kName); });
    EXPECT_NE(text.find("weight_shape"), std::string::npos) << text;
  }
  CompressedInt4Tensors tensors = compressed.tensors();
  tensors.weight_shape = {};
  expect_same(from_compressed_int4(tensors, 32, kName), p);
}

TEST(CompressedInt4Layout, OtherFormatsHaveNoSuchForm) {
  const std::vector<float> w(64, 1.0f);
  EXPECT_THROW(compressed_int4_codes(quantize_matrix(w, 2, 32, FormatSpec::mxfp4())), Error);
}

TEST(ZeroPoints, AreDroppedExactlyWhenAllAreEight) {
  Plain p = plain_matrix(16, 64, 32);
  std::fill(p.zeros.begin(), p.zeros.end(), 8);
  const Gptq symmetric(p);
  QuantizedMatrix matrix = from_gptq(symmetric.tensors(), 32, GptqZeros::minus_one, kName);
  EXPECT_TRUE(drop_symmetric_zero_points(matrix));
  EXPECT_EQ(matrix.spec, FormatSpec::int4(32));
  EXPECT_TRUE(matrix.zeros.empty());
  p.zeros.back() = 7;
  const Gptq other(p);
  matrix = from_gptq(other.tensors(), 32, GptqZeros::minus_one, kName);
  EXPECT_FALSE(drop_symmetric_zero_points(matrix));
  expect_same(matrix, p);
}

TEST(Fp8Blocks, EveryByteTimesItsBlockScale) {
  const std::int64_t n = 130, k = 260;  // tails in both directions: blocks of 128 give 2 x 3 scales
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * k));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const std::vector<float> scales{0.5f, 0.3f, 7.0f, 1e-3f, 2.0f, 1.0f};
  const Tensor weight(bytes, DType::f8_e4m3, n, k), scale(scales, DType::f32, 2, 3);
  std::vector<float> out(bytes.size());
  dequantize_fp8_blocks(weight.view(), scale.view(), 128, 128, out, kName);
  int numbers = 0, nans = 0;
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t column = 0; column < k; ++column) {
      const auto at = static_cast<std::size_t>(row * k + column);
      const double exact =
          oracle::value_of(oracle::kE4m3, bytes[at]) * scales[static_cast<std::size_t>(row / 128 * 3 + column / 128)];
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(out[at]));
        ++nans;
      } else {
        ASSERT_EQ(out[at], static_cast<float>(exact)) << row << " " << column;
        ++numbers;
      }
    }
  EXPECT_EQ(numbers + nans, n * k);
  EXPECT_GT(nans, 200);
}

TEST(Fp8Blocks, ScalesOfAnotherShapeAreRefused) {
  const Tensor weight(std::vector<std::uint8_t>(64 * 64), DType::f8_e4m3, 64, 64);
  const Tensor scale(std::vector<float>(2), DType::f32, 1, 2);
  std::vector<float> out(64 * 64);
  const std::string text =
      refusal(ErrorCode::bad_input, [&] { dequantize_fp8_blocks(weight.view(), scale.view(), 128, 128, out, kName); });
  EXPECT_NE(text.find("weight_scale_inv has shape [1, 2]; [1, 1]"), std::string::npos) << text;
}

}  // namespace
}  // namespace fourfold
