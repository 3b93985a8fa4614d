// Dense matrix products against double precision, and the promise that a row's bits do not depend on its batch.
#include <cmath>
#include <cstring>

#include "core/float16.h"
#include "cpu/ops_isas.h"
#include "fourfold/error.h"

namespace fourfold::test {
namespace {

class OpsDense : public OpsTest {
 protected:
  /// y = x w^T + bias through the operation; x is rounded to `dtype` by the caller's choice of values.
  std::vector<float> product(const DenseWeight& weight, const std::vector<float>& x, std::int64_t m, DType dtype,
                             const std::vector<float>* start = nullptr) {
    std::vector<std::uint16_t> halves(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) halves[i] = float_to_bf16(x[i]);
    std::vector<std::byte> scratch(ops->matmul_scratch_bytes(weight.columns(), dtype) + 64);
    std::vector<float> y(static_cast<std::size_t>(m * weight.rows()), NAN);
    if (start != nullptr) y = *start;
    MatmulCall call;
    call.x = dtype == DType::bf16 ? static_cast<const void*>(halves.data()) : x.data();
    call.x_dtype = dtype;
    call.m = m;
    call.y = y.data();
    call.add = start != nullptr;
    call.scratch = scratch.data();
    ops->matmul(weight, call);
    return y;
  }
};

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = bf16_to_float(float_to_bf16(value));
  return values;
}

struct Shape {
  std::int64_t n, k;
};

/// Largest |y - exact| over its bound. k + 2 roundings of fp32 (bias, addition) over the sum of magnitudes; the dot
/// product may round a pair's products before adding, and reads subnormals as zero: twice that and 2^-126 k.
double error_over_bound(const std::vector<float>& y, const std::vector<float>& x, const std::vector<float>& w,
                        const std::vector<float>& bias, std::int64_t m, Shape s, double start) {
  double worst = 0;
  std::int64_t compared = 0;
  for (std::int64_t t = 0; t < m; ++t)
    for (std::int64_t n = 0; n < s.n; ++n, ++compared) {
      double exact = bias[static_cast<std::size_t>(n)] + start, size = std::abs(exact) + std::abs(start);
      for (std::int64_t k = 0; k < s.k; ++k) {
        const double term = double{x[static_cast<std::size_t>(t * s.k + k)]} * w[static_cast<std::size_t>(n * s.k + k)];
        exact += term;
        size += std::abs(term);
      }
      const double bound = static_cast<double>(s.k + 2) * size * 0x1p-23 + 0x1p-120;
      const double error = std::abs(y[static_cast<std::size_t>(t * s.n + n)] - exact) / bound;
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  EXPECT_EQ(compared, m * s.n);
  return worst;
}

constexpr Shape kShapes[] = {{1, 2}, {15, 6}, {16, 64}, {17, 34}, {33, 130}, {24, 256}, {130, 66}, {600, 32}};
constexpr std::int64_t kTokens[] = {1, 2, 3, 4, 5, 12, 13, 48, 49, 97};

TEST_P(OpsDense, MatchesDoublePrecisionForEverySizeAndDtype) {
  Noise noise(1);
  for (const Shape s : kShapes) {
    const std::vector<float> w = rounded(noise.vector(s.n * s.k)), bias = noise.vector(s.n);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto weight =
          ops->prepare_dense({w.data(), DType::f32, {s.n, s.k}}, {bias.data(), DType::f32, {s.n}}, dtype);
      for (const std::int64_t m : kTokens) {
        std::vector<float> x = noise.vector(m * s.k);
        if (dtype == DType::bf16) x = rounded(x);
        EXPECT_LE(error_over_bound(product(*weight, x, m, dtype), x, w, bias, m, s, 0), 1)
            << "n " << s.n << " k " << s.k << " m " << m << " " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(OpsDense, AddsToWhatIsThere) {
  Noise noise(2);
  const Shape s{33, 64};
  const std::vector<float> w = rounded(noise.vector(s.n * s.k)), bias = noise.vector(s.n),
                           x = rounded(noise.vector(5 * s.k));
  const std::vector<float> start(static_cast<std::size_t>(5 * s.n), 3.0f);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto weight = ops->prepare_dense({w.data(), DType::f32, {s.n, s.k}}, {bias.data(), DType::f32, {s.n}}, dtype);
    EXPECT_LE(error_over_bound(product(*weight, x, 5, dtype, &start), x, w, bias, 5, s, 3.0), 1);
  }
}

TEST_P(OpsDense, ARowHasTheSameBitsAloneAndInEveryBatch) {
  Noise noise(3);
  const Shape s{600, 130};
  const std::vector<float> w = noise.vector(s.n * s.k), x = noise.vector(100 * s.k);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto weight = ops->prepare_dense({w.data(), DType::f32, {s.n, s.k}}, {}, dtype);
    const std::vector<float> all = product(*weight, x, 100, dtype);
    for (const std::int64_t m : {1, 2, 4, 7, 16, 61})
      for (std::int64_t first = 0; first + m <= 100; first += 29) {
        const std::vector<float> part(x.begin() + first * s.k, x.begin() + (first + m) * s.k);
        const std::vector<float> y = product(*weight, part, m, dtype);
        EXPECT_EQ(std::memcmp(y.data(), all.data() + first * s.n, y.size() * 4), 0) << "m " << m << " first " << first;
      }
  }
}

TEST_P(OpsDense, KeepsHalfPrecisionSourcesExact) {
  Noise noise(4);
  const Shape s{17, 34};
  std::vector<std::uint16_t> bf16, f16;
  for (const float value : noise.vector(s.n * s.k)) {
    bf16.push_back(float_to_bf16(value));
    f16.push_back(float_to_f16(value));
  }
  const auto from_bf16 = ops->prepare_dense({bf16.data(), DType::bf16, {s.n, s.k}}, {}, DType::f32);
  const auto from_f16 = ops->prepare_dense({f16.data(), DType::f16, {s.n, s.k}}, {}, DType::f32);
  const std::int32_t ids[] = {16, 0, 5};
  std::vector<float> rows(3 * static_cast<std::size_t>(s.k));
  std::int64_t compared = 0;
  for (const auto& [weight, halves, wide] :
       {std::tuple(&from_bf16, &bf16, &bf16_to_float), {&from_f16, &f16, &f16_to_float}}) {
    ops->gather_rows(**weight, ids, 3, rows.data());
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t k = 0; k < s.k; ++k, ++compared)
        EXPECT_EQ(rows[static_cast<std::size_t>(i * s.k + k)],
                  wide((*halves)[static_cast<std::size_t>(ids[i] * s.k + k)]));
  }
  EXPECT_EQ(compared, 2 * 3 * s.k);
}

TEST_P(OpsDense, Bf16WeightsTakeTwoBytes) {
  const std::vector<std::uint16_t> w(64 * 32, 0x3f80);
  EXPECT_EQ(ops->prepare_dense({w.data(), DType::bf16, {64, 32}}, {}, DType::f32)->bytes(), 64u * 32 * 2);
}

TEST_P(OpsDense, NanStaysInItsRow) {
  Noise noise(5);
  const Shape s{40, 64};
  const std::vector<float> w = noise.vector(s.n * s.k);
  std::vector<float> x = noise.vector(13 * s.k);
  x[static_cast<std::size_t>(4 * s.k + 3)] = NAN;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto weight = ops->prepare_dense({w.data(), DType::f32, {s.n, s.k}}, {}, dtype);
    const std::vector<float> y = product(*weight, x, 13, dtype);
    for (std::int64_t t = 0; t < 13; ++t)
      for (std::int64_t n = 0; n < s.n; ++n) EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(t * s.n + n)]), t == 4);
  }
}

TEST_P(OpsDense, RefusesOddColumnsAndOtherDtypes) {
  const std::vector<float> w(64);
  EXPECT_THROW(ops->prepare_dense({w.data(), DType::f32, {4, 3}}, {}, DType::f32), Error);
  EXPECT_THROW(ops->prepare_dense({w.data(), DType::i32, {4, 4}}, {}, DType::f32), Error);
  EXPECT_THROW(ops->prepare_dense({w.data(), DType::f32, {4, 4}}, {w.data(), DType::f32, {3}}, DType::f32), Error);
}

INSTANTIATE_TEST_SUITE_P(Isa, OpsDense, ::testing::ValuesIn(machine_isas()), isa_of);

}  // namespace
}  // namespace fourfold::test
