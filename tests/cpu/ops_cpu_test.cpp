// Norms, routing, activation and row copies of the dense operations against double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/float16.h"
#include "cpu/ops_isas.h"

namespace fourfold::test {
namespace {

class OpsCpu : public OpsTest {
 protected:
  struct Routed {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
  };
  Routed route(const std::vector<float>& logits, std::int64_t experts, std::int64_t top_k, bool renormalise) {
    const auto tokens = static_cast<std::int64_t>(logits.size()) / experts;
    Routed routed;
    routed.ids.resize(static_cast<std::size_t>(tokens * top_k), -7);
    routed.weights.resize(routed.ids.size(), NAN);
    std::vector<float> scratch(static_cast<std::size_t>(tokens * ((experts + 15) / 16 * 16)));
    ops->route_softmax_topk(
        {logits.data(), tokens, experts, top_k, renormalise, routed.ids.data(), routed.weights.data(), scratch.data()});
    return routed;
  }
};

TEST_P(OpsCpu, RmsNormMatchesDoublePrecision) {
  for (const std::int64_t width : {8, 16, 24, 64, 250, 1024}) {
    Noise noise(11);
    const std::vector<float> x = noise.vector(3 * width), weight = noise.vector(width);
    std::vector<float> y(x.size(), NAN), copy = x;
    ops->rms_norm({copy.data(), nullptr, DType::f32, weight.data(), 1e-6f, 3, width, y.data(), DType::f32});
    EXPECT_EQ(copy, x);
    for (std::int64_t i = 0; i < 3; ++i) {
      double squares = 0;
      for (std::int64_t d = 0; d < width; ++d)
        squares += std::pow(double{x[static_cast<std::size_t>(i * width + d)]}, 2);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-6);
      for (std::int64_t d = 0; d < width; ++d) {
        const double exact = x[static_cast<std::size_t>(i * width + d)] * factor * weight[static_cast<std::size_t>(d)];
        // half of the relative error of the sum of squares (width / 16 + 5 roundings), then five more roundings
        const double bound = (static_cast<double>(width) / 32 + 8) * 0x1p-24 * std::abs(exact);
        EXPECT_NEAR(y[static_cast<std::size_t>(i * width + d)], exact, bound) << width;
      }
    }
  }
}

TEST_P(OpsCpu, RmsNormAddsFirstAndRoundsOnce) {
  const std::int64_t width = 40;
  Noise noise(12);
  const std::vector<float> x = noise.vector(width), addend = noise.vector(width), weight = noise.vector(width);
  std::vector<std::uint16_t> halves;
  for (const float v : addend) halves.push_back(float_to_bf16(v));
  std::vector<float> sum = x, plain(40);
  std::vector<std::uint16_t> y(40);
  ops->rms_norm({sum.data(), halves.data(), DType::bf16, weight.data(), 1e-6f, 1, width, y.data(), DType::bf16});
  std::vector<float> expected = x;
  for (std::size_t i = 0; i < 40; ++i) expected[i] += bf16_to_float(halves[i]);
  EXPECT_EQ(sum, expected);
  ops->rms_norm({sum.data(), nullptr, DType::bf16, weight.data(), 1e-6f, 1, width, plain.data(), DType::f32});
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(y[i], float_to_bf16(plain[i]));
}

TEST_P(OpsCpu, SiluIsAccurateFromEndToEnd) {
  std::vector<float> gate_up;
  for (int i = -8000; i < 8000; ++i) gate_up.push_back(static_cast<float>(i) / 97.0f);
  const auto n = static_cast<std::int64_t>(gate_up.size());
  gate_up.resize(static_cast<std::size_t>(2 * n), 1.5f);
  std::vector<float> y(static_cast<std::size_t>(n), NAN);
  ops->silu_mul(gate_up.data(), 1, n, y.data(), DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    const double g = gate_up[static_cast<std::size_t>(i)], exact = g / (1 + std::exp(-g)) * 1.5;
    // exp 2e-7, three more roundings of 2^-24
    EXPECT_NEAR(y[static_cast<std::size_t>(i)], exact, std::abs(exact) * 4e-7) << g;
  }
}

TEST_P(OpsCpu, SiluKeepsLimitsAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gate_up{-1e30f,   -200.0f, 0.0f, 200.0f, infinity, NAN, 1.0f, 2.0f,
                                   /*up*/ 1, 1,       1,    1,      1,        1,   1,    1};
  std::vector<float> y(8, -7);
  ops->silu_mul(gate_up.data(), 1, 8, y.data(), DType::f32);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 200.0f);
  EXPECT_EQ(y[4], infinity);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST_P(OpsCpu, RoutesTheLargestProbabilities) {
  for (const std::int64_t experts : {1, 5, 16, 24, 130})
    for (const bool renormalise : {false, true}) {
      const std::int64_t top_k = std::min<std::int64_t>(experts, 4), tokens = 9;
      std::vector<float> logits = Noise(13).vector(tokens * experts);
      for (float& v : logits) v *= 5;
      const Routed routed = route(logits, experts, top_k, renormalise);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const float* row = logits.data() + t * experts;
        std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](auto a, auto b) { return row[a] > row[b]; });
        double all = 0, chosen = 0;
        for (std::int64_t e = 0; e < experts; ++e) all += std::exp(double{row[e]});
        for (std::int64_t j = 0; j < top_k; ++j) chosen += std::exp(double{row[order[static_cast<std::size_t>(j)]]});
        for (std::int64_t j = 0; j < top_k; ++j) {
          const std::int32_t id = order[static_cast<std::size_t>(j)];
          EXPECT_EQ(routed.ids[static_cast<std::size_t>(t * top_k + j)], id);
          const double exact = std::exp(double{row[id]}) / (renormalise ? chosen : all);
          // exp 2e-7 of a rounded difference of size 10, sums and quotients: a few roundings more
          EXPECT_NEAR(routed.weights[static_cast<std::size_t>(t * top_k + j)], exact, exact * 3e-6);
        }
      }
    }
}

TEST_P(OpsCpu, EqualLogitsRouteToTheLowestIndex) {
  const Routed routed = route({1, 2, 2, 1, 2, 0}, 6, 4, false);
  EXPECT_EQ(routed.ids, (std::vector<std::int32_t>{1, 2, 4, 0}));
}

TEST_P(OpsCpu, NanLogitsKeepValidDistinctIdsAndNanWeights) {
  const Routed routed = route({1, NAN, 3, 4, 5, 1, 2, 3, 4, 5}, 5, 3, true);
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_GE(routed.ids[j], 0);
    EXPECT_LT(routed.ids[j], 5);
    EXPECT_TRUE(std::isnan(routed.weights[j]));
    EXPECT_FALSE(std::isnan(routed.weights[3 + j]));
  }
  EXPECT_NE(routed.ids[0], routed.ids[1]);
  EXPECT_NE(routed.ids[1], routed.ids[2]);
  EXPECT_NE(routed.ids[0], routed.ids[2]);
}

TEST_P(OpsCpu, GathersAndScattersRows) {
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  const std::int32_t index[] = {2, 0};
  std::vector<float> y(4);
  ops->gather(x.data(), index, 2, 8, y.data());
  EXPECT_EQ(y, (std::vector<float>{5, 6, 1, 2}));
  std::vector<float> out(6, 100);
  const float factor[] = {2, 10};
  ops->scatter_add(y.data(), index, factor, 2, 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{110, 120, 100, 100, 110, 112}));
}

INSTANTIATE_TEST_SUITE_P(Isa, OpsCpu, ::testing::ValuesIn(machine_isas()), isa_of);

}  // namespace
}  // namespace fourfold::test
