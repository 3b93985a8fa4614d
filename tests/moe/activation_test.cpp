// Activations by their numbers (BL-20, 21), factors that count once (BL-22), options that are honoured or refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/moe_oracle.h"
#include "support/int4_experts.h"
#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;
using support::Bytes;
using support::Int4Experts;
using support::MoeLayer;

namespace {

constexpr GateUpOrder kOrders[] = {GateUpOrder::gate_up, GateUpOrder::up_gate, GateUpOrder::interleaved};

/// One token, one expert, hidden = intermediate = 8, f32: gate and up of every row are `gate` and `up` times x, the
/// down projection is the identity. Returns output element 0.
double activated(Activation activation, int gate, int up, double x, GateUpOrder order = GateUpOrder::gate_up) {
  Caps caps = support::caps_of("t1 k1 e1 h8 i8 int4 g16 f32 silu");
  caps.activation = activation;
  Int4Experts experts(caps, order);
  for (int row = 0; row < 8; ++row) {
    if (activation.gated()) experts.gate(0, row, 0, gate);
    experts.up(0, row, 0, up);
    experts.down(0, row, row, 1);
  }
  RandomCall call = random_call(caps, 1, 1);
  call.x = support::in_dtype({x, 0, 0, 0, 0, 0, 0, 0}, DType::f32);
  call.tensors.x.data = call.x.data();
  call.topk_weights = {1};
  call.tensors.topk_weights.data = call.topk_weights.data();
  const Bytes out = MoeLayer(caps, experts.stacked()).run(call.tensors);
  for (int row = 1; row < 8; ++row)
    EXPECT_EQ(support::element(out, DType::f32, row), support::element(out, DType::f32, 0));
  return support::element(out, DType::f32, 0);
}

Activation swiglu_oai() {
  Activation activation{.kind = ActivationKind::swiglu_oai, .limit = {}, .alpha = {}, .beta = {}};
  return activation;
}
Activation silu(std::optional<float> limit = {}) {
  return {.kind = ActivationKind::silu, .limit = limit, .alpha = {}, .beta = {}};
}

// A dozen fp32 roundings in exp, division and products: 16 * 2^-24 relative.
#define EXPECT_CLOSE(got, want) EXPECT_NEAR(got, want, 16 * 0x1p-24 * std::fabs(want)) << #got

}  // namespace

// gate 2, up -3: -5.2848; read the other way round it would be -0.2846.
TEST(GateUpOrder, TheRightHalfIsTheGate) {
  const double right = 2 / (1 + std::exp(-2.0)) * -3, swapped = -3 / (1 + std::exp(3.0)) * 2;
  EXPECT_NEAR(right, -5.2848, 5e-5);
  EXPECT_NEAR(swapped, -0.2846, 5e-5);
  for (GateUpOrder order : kOrders) EXPECT_CLOSE(activated(silu(), 2, -3, 1, order), right);
}

// Different scales and biases per half, so that a half that moves alone shows.
TEST(GateUpOrder, ThreeOrdersGiveOneOutput) {
  const Caps caps = support::caps_of("t5 k2 e2 h16 i8 int4 g16 bf16 silu bias");
  const RandomCall call = random_call(caps, 5, 3);
  Bytes first;
  for (GateUpOrder order : kOrders) {
    Int4Experts experts(caps, order);
    for (int expert = 0; expert < 2; ++expert)
      for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) experts.down(expert, row, column, (row * 3 + column * 5) % 9 - 4);
        if (row >= 8) continue;
        for (int column = 0; column < 16; ++column) {
          experts.gate(expert, row, column, (row + column * 7 + expert) % 15 - 7);
          experts.up(expert, row, column, (row * 5 + column * 3 + expert) % 13 - 6);
        }
        experts.gate_scale(expert, row, 0.02f + 0.01f * static_cast<float>(row));
        experts.up_scale(expert, row, 0.3f - 0.02f * static_cast<float>(row));
        experts.gate_bias(expert, row, 0.5f);
        experts.up_bias(expert, row, -0.25f * static_cast<float>(row));
      }
    const Bytes out = MoeLayer(caps, experts.stacked()).run(call.tensors);
    EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, out));
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
  }
}

TEST(GateUpOrder, ReadingTheOtherOrderGivesAnotherResult) {
  const Caps caps = support::caps_of("t5 k2 e3 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 5, 3);
  StackedExperts other = experts.stacked();
  const Bytes out = MoeLayer(caps, other).run(call.tensors);
  for (GateUpOrder order : {GateUpOrder::up_gate, GateUpOrder::interleaved}) {
    other.order = order;
    EXPECT_NE(MoeLayer(caps, other).run(call.tensors), out);
  }
}

TEST(SwigluOai, TheNumbersOfTheBugLog) {
  EXPECT_NEAR(activated(swiglu_oai(), 5, 5, 4), 55.9996, 1e-4);
  EXPECT_NEAR(activated(swiglu_oai(), 5, -5, 4), -41.9997, 1e-4);
  EXPECT_NEAR(activated(swiglu_oai(), -5, 5, 4), -2.63e-13, 1e-15) << "the gate has no lower clamp";
  EXPECT_NEAR(activated(swiglu_oai(), 3, 4, 1), 14.9096, 1e-4);
}

TEST(Silu, TheNumbersOfTheBugLog) {
  EXPECT_NEAR(activated(silu(), 5, 5, 4), 400, 1e-4);
  EXPECT_NEAR(activated(silu(), 5, -5, 4), -400, 1e-4);
  EXPECT_NEAR(activated(silu(), -5, 5, 4), -8.2e-7, 5e-9);
  EXPECT_NEAR(activated(silu(), 3, 4, 1), 11.4309, 1e-4);
}

TEST(Silu, TheLimitClampsTheGateAboveAndUpOnBothSides) {
  const auto plain = [](double g, double u) { return g / (1 + std::exp(-g)) * u; };
  EXPECT_CLOSE(activated(silu(1.5f), 5, 5, 1), plain(1.5, 1.5));
  EXPECT_CLOSE(activated(silu(1.5f), 5, -5, 1), plain(1.5, -1.5));
  EXPECT_CLOSE(activated(silu(1.5f), -5, 1, 1), plain(-5, 1));
}

TEST(Silu, NoLimitAndAHugeOneGiveEqualBits) {
  Caps caps = support::caps_of("t17 k2 e3 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 17, 3);
  for (const auto& backend : support::backends()) {
    caps.activation.limit = {};
    const Bytes without = MoeLayer(caps, experts.stacked(), *backend).run(call.tensors);
    caps.activation.limit = 1e30f;
    EXPECT_EQ(MoeLayer(caps, experts.stacked(), *backend).run(call.tensors), without);
  }
}

TEST(OtherActivations, ByTheirFormulas) {
  Activation activation{};
  for (const auto& [g, u, x] : {std::tuple{3, 4, 1.0}, std::tuple{-2, 5, 0.5}, std::tuple{7, -7, 3.0},
                                std::tuple{-7, 7, 2.5}, std::tuple{1, 1, 1e-3}}) {
    for (ActivationKind kind : {ActivationKind::situ, ActivationKind::gelu_tanh, ActivationKind::relu2}) {
      activation.kind = kind;
      const double want = oracle::activate(activation, g * x, u * x);
      // gelu's 1 + tanh cancels: its error is that of 1 times the product.
      const double size = kind == ActivationKind::gelu_tanh ? std::fabs(g * x * u * x) : std::fabs(want);
      EXPECT_NEAR(activated(activation, g, u, x), want, 32 * 0x1p-24 * size) << activation_name(kind);
    }
  }
}

TEST(Relu2, HasIntermediateRowsAndNoGate) {
  const Caps caps = support::caps_of("t1 k1 e3 h64 i32 nvfp4 bf16 relu2");
  EXPECT_EQ(caps.gate_up_rows(), 32);
  const RandomExperts experts(caps, 1);
  EXPECT_EQ(experts.stacked().gate_up_codes.shape[1], 32);
  StackedExperts doubled = experts.stacked();
  doubled.gate_up_codes.shape[1] = 64;
  EXPECT_THROW(MoeLayer(caps, doubled), Error);
}

// Every row of the option table is computed or refused by name, never ignored.
TEST(Options, AreHonouredOrRefused) {
  const Device& device = support::native().device();
  const auto verdict = [&](ActivationKind kind, std::optional<float> limit, std::optional<float> alpha,
                           std::optional<float> beta) {
    Caps caps = support::caps_of("t1 k1 e1 h8 i8 nvfp4");
    caps.activation = {kind, limit, alpha, beta};
    const Support support = can_implement(caps, device);
    EXPECT_EQ(support.ok, support.reason.empty());
    return support.ok;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (ActivationKind kind : {ActivationKind::silu, ActivationKind::swiglu_oai, ActivationKind::situ,
                              ActivationKind::gelu_tanh, ActivationKind::relu2}) {
    const bool oai = kind == ActivationKind::swiglu_oai, limited = oai || kind == ActivationKind::silu;
    EXPECT_TRUE(verdict(kind, {}, {}, {}));
    EXPECT_EQ(verdict(kind, 7.0f, {}, {}), limited) << activation_name(kind);
    EXPECT_EQ(verdict(kind, {}, 1.5f, {}), oai) << activation_name(kind);
    EXPECT_EQ(verdict(kind, {}, {}, 0.5f), oai) << activation_name(kind);
    for (float bad : {nan, inf, 0.0f, -1.0f}) EXPECT_FALSE(verdict(kind, bad, {}, {})) << bad;
    for (float bad : {nan, inf}) {
      EXPECT_FALSE(verdict(kind, {}, bad, {})) << bad;
      EXPECT_FALSE(verdict(kind, {}, {}, bad)) << bad;
    }
  }
}

// Identity experts: relu2 of x >= 0 is x^2, so the output is weight * scale * x^2 exactly.
TEST(Factors, CountOnce) {
  for (bool on_input : {false, true}) {
    Caps caps = support::caps_of("t1 k1 e1 h8 i8 int4 g16 bf16 relu2");
    caps.router_weight_on_input = on_input;
    Int4Experts experts(caps);
    for (int row = 0; row < 8; ++row) {
      experts.up(0, row, row, 1);
      experts.down(0, row, row, 3);
    }
    RandomCall call = random_call(caps, 1, 1);
    call.x = support::in_dtype({0, 1, 2, 3, 4, 5, 6, -7}, DType::bf16);
    call.tensors.x.data = call.x.data();
    call.topk_weights = {0.5f};
    call.tensors.topk_weights.data = call.topk_weights.data();
    const Bytes out = MoeLayer(caps, experts.stacked()).run(call.tensors);
    for (int i = 0; i < 7; ++i)
      EXPECT_EQ(support::element(out, DType::bf16, i), (on_input ? 0.25 : 0.5) * 3 * i * i) << i;
    EXPECT_EQ(support::element(out, DType::bf16, 7), 0);
  }
}

// On the input the weight goes before the bias and the activation, at any top-k.
TEST(Factors, RouterWeightOnTheInputAtAnyTopK) {
  for (const auto& backend : support::backends())
    for (std::int64_t top_k : {1, 2, 4, 8}) {
      Caps caps = support::caps_of("t9 k1 e5 h64 i32 nvfp4 bf16 silu bias on_input");
      caps.top_k = top_k;
      EXPECT_TRUE(support::problem_fits(caps, 9, top_k, *backend));
    }
}

// Two shards of the intermediate size sum to the whole, when one of them has the down bias.
TEST(Factors, DownBiasOfTwoShardsCountsOnce) {
  const Caps whole_caps = support::caps_of("t3 k1 e1 h8 i16 int4 g16 f32 relu2 down_bias");
  Caps with_bias = support::caps_of("t3 k1 e1 h8 i8 int4 g16 f32 relu2 down_bias"), without = with_bias;
  without.down_bias = false;
  Int4Experts whole(whole_caps), first(with_bias), second(without);
  for (int row = 0; row < 8; ++row) {
    whole.down_bias(0, row, 1);
    first.down_bias(0, row, 1);
    for (int inner = 0; inner < 16; ++inner) {
      const int down = (row + inner) % 5 - 2, up = (row * inner) % 7 - 3;
      whole.down(0, row, inner, down);
      (inner < 8 ? first : second).down(0, row, inner % 8, down);
      whole.up(0, inner, row, up);
      (inner < 8 ? first : second).up(0, inner % 8, row, up);
    }
  }
  RandomCall call = random_call(whole_caps, 3, 1);
  std::vector<double> x;
  for (int i = 0; i < 24; ++i) x.push_back(i % 5 - 2);  // small integers: every sum below is exact
  call.x = support::in_dtype(x, DType::f32);
  call.tensors.x.data = call.x.data();
  call.topk_weights = {1, 0.5f, 2};
  call.tensors.topk_weights.data = call.topk_weights.data();
  const Bytes one = MoeLayer(whole_caps, whole.stacked()).run(call.tensors);
  const Bytes a = MoeLayer(with_bias, first.stacked()).run(call.tensors);
  const Bytes b = MoeLayer(without, second.stacked()).run(call.tensors);
  for (int i = 0; i < 24; ++i)
    EXPECT_EQ(support::element(a, DType::f32, i) + support::element(b, DType::f32, i),
              support::element(one, DType::f32, i))
        << i;
}
