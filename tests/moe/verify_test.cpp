// The comparer against stubs that lie (BL-40), random problems, the device matrix, random experts.
#include "fourfold/verify.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/float16.h"
#include "moe/reference_moe.h"
#include "moe/verify_call.h"
#include "oracle/moe_oracle.h"
#include "support/moe_layer.h"

using namespace fourfold;
using support::Bytes;

namespace {

/// A small call, its truth, and a right answer: the truth rounded to bf16.
struct Fixture {
  Caps caps = support::caps_of("t5 k2 e4 h64 i32 nvfp4 bf16 silu");
  RandomExperts experts{caps, 1};
  RandomCall call = random_call(caps, 5, 2);
  ReferenceResult reference = reference_moe(caps, experts.stacked(), call.tensors);
  Bytes right = support::in_dtype(reference.expected, DType::bf16);

  Comparison compare(const Bytes& out) const {
    return compare_output(ConstTensorView(out.data(), DType::bf16, {5, 64}), reference.expected, reference.bound);
  }
  bool oracle_accepts(const Bytes& out) const {
    return static_cast<bool>(support::fits_oracle(caps, experts.stacked(), call.tensors, out));
  }
};

}  // namespace

TEST(Comparer, AcceptsTheRightAnswer) {
  const Fixture fixture;
  const Comparison comparison = fixture.compare(fixture.right);
  EXPECT_TRUE(comparison.ok) << comparison.reason;
  EXPECT_EQ(comparison.compared, 5 * 64);
  EXPECT_TRUE(fixture.oracle_accepts(fixture.right));
}

TEST(Comparer, RefusesNan) {
  const Fixture fixture;
  const Bytes all_nan(fixture.right.size(), std::byte{0xff});
  EXPECT_FALSE(fixture.compare(all_nan).ok);
  EXPECT_FALSE(fixture.oracle_accepts(all_nan));
  Bytes one_nan = fixture.right;
  one_nan[131] = std::byte{0x7f};
  one_nan[130] = std::byte{0xc0};
  EXPECT_FALSE(fixture.compare(one_nan).ok);
  EXPECT_FALSE(fixture.oracle_accepts(one_nan));
}

TEST(Comparer, RefusesZeros) {
  const Fixture fixture;
  const Bytes zeros(fixture.right.size());
  EXPECT_FALSE(fixture.compare(zeros).ok);
  EXPECT_FALSE(fixture.oracle_accepts(zeros));
}

TEST(Comparer, RefusesThePreviousOutput) {
  const Fixture fixture;
  const RandomCall previous = random_call(fixture.caps, 5, 3);
  const Bytes stale =
      support::in_dtype(reference_moe(fixture.caps, fixture.experts.stacked(), previous.tensors).expected, DType::bf16);
  EXPECT_FALSE(fixture.compare(stale).ok);
  EXPECT_FALSE(fixture.oracle_accepts(stale));
}

TEST(Comparer, RefusesSwappedExperts) {
  const Fixture fixture;
  std::vector<std::int32_t> ids(10);
  std::memcpy(ids.data(), fixture.call.topk_ids.data(), 40);
  for (std::int32_t& id : ids) id ^= 1;
  MoeTensors inputs = fixture.call.tensors;
  inputs.topk_ids.data = ids.data();
  const Bytes swapped =
      support::in_dtype(reference_moe(fixture.caps, fixture.experts.stacked(), inputs).expected, DType::bf16);
  EXPECT_FALSE(fixture.compare(swapped).ok);
  EXPECT_FALSE(fixture.oracle_accepts(swapped));
}

TEST(Comparer, RefusesTheWrongInfinityAndNumbersWhereNanIsRight) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double expected[] = {inf, -inf, nan}, bound[] = {1, 1, 1};
  const auto verdict = [&](double a, double b, double c) {
    const Bytes out = support::in_dtype({a, b, c}, DType::f32);
    return compare_output(ConstTensorView(out.data(), DType::f32, {3}), expected, bound).ok;
  };
  EXPECT_TRUE(verdict(inf, -inf, nan));
  EXPECT_FALSE(verdict(-inf, -inf, nan));
  EXPECT_FALSE(verdict(inf, 3e38, nan));
  EXPECT_FALSE(verdict(inf, -inf, 0));
  EXPECT_FALSE(verdict(inf, nan, nan));
}

TEST(Comparer, RefusesAnEmptyOrShortComparison) {
  const Bytes out = support::in_dtype({1, 2}, DType::f32);
  const double values[] = {1, 2}, bounds[] = {1, 1};
  EXPECT_FALSE(compare_output(ConstTensorView(out.data(), DType::f32, {0}), {}, {}).ok);
  EXPECT_FALSE(compare_output(ConstTensorView(out.data(), DType::f32, {2}), std::span(values, 1), bounds).ok);
  EXPECT_FALSE(compare_output(ConstTensorView(out.data(), DType::f32, {2}), values, std::span(bounds, 1)).ok);
  EXPECT_TRUE(compare_output(ConstTensorView(out.data(), DType::f32, {2}), values, bounds).ok);
}

TEST(Comparer, RefusesABoundThatIsNoNumber) {
  const Bytes out = support::in_dtype({1}, DType::f32);
  const double value[] = {1};
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(compare_output(ConstTensorView(out.data(), DType::f32, {1}), value, std::span(&bad, 1)).ok);
}

// Two evaluations written apart, one in the library and one in the tests, agree to double rounding.
TEST(Reference, AgreesWithTheOracle) {
  for (const char* text :
       {"t9 k3 e5 h72 i40 nvfp4 bf16 silu bias", "t9 k3 e5 h72 i40 mxfp4 f16 swiglu_oai limit=2 alpha=1.5 beta=0.5",
        "t9 k3 e5 h72 i40 int4 g32 zp f32 situ eg8", "t9 k3 e5 h72 i40 int4 grow bf16 gelu_tanh on_input bias",
        "t9 k3 e5 h72 i40 nvfp4 bf16 relu2"}) {
    const Caps caps = support::caps_of(text);
    for (GateUpOrder order : {GateUpOrder::gate_up, GateUpOrder::up_gate, GateUpOrder::interleaved}) {
      const RandomExperts experts(caps, 3);
      StackedExperts stacked = experts.stacked();
      stacked.order = order;
      const RandomCall call = random_call(caps, 9, 4, {.plant_dead_ids = true});
      const ReferenceResult reference = reference_moe(caps, stacked, call.tensors);
      const oracle::Truth truth = oracle::evaluate(caps, stacked, call.tensors);
      ASSERT_EQ(reference.expected.size(), truth.value.size());
      EXPECT_EQ(reference.invalid_ids, truth.invalid_ids);
      EXPECT_GT(truth.invalid_ids, 0u);
      for (std::size_t i = 0; i < truth.value.size(); ++i)
        ASSERT_NEAR(reference.expected[i], truth.value[i], 1e-6 * truth.tolerance[i]) << text << " element " << i;
    }
  }
}

TEST(Reference, RefusesShapesThatDoNotFit) {
  const Fixture fixture;
  MoeTensors inputs = fixture.call.tensors;
  inputs.topk_weights.shape[1] = 3;
  EXPECT_THROW(reference_moe(fixture.caps, fixture.experts.stacked(), inputs), Error);
}

TEST(RandomExperts, SameSeedSameBytesOtherSeedOthers) {
  const Caps caps = support::caps_of("t1 k1 e3 h512 i256 nvfp4");
  const RandomExperts one(caps, 7), again(caps, 7), other(caps, 8);
  const auto& view = one.stacked().gate_up_codes;
  ASSERT_GT(view.bytes(), 2 << 16) << "must span several blocks";
  EXPECT_EQ(std::memcmp(view.data, again.stacked().gate_up_codes.data, view.bytes()), 0);
  EXPECT_NE(std::memcmp(view.data, other.stacked().gate_up_codes.data, view.bytes()), 0);
}

TEST(RandomExperts, OutputsAreNearOne) {
  for (const char* text :
       {"t32 k2 e4 h256 i128 nvfp4 f32", "t32 k2 e4 h256 i128 mxfp4 f32", "t32 k2 e4 h256 i128 int4 g32 f32",
        "t32 k2 e4 h256 i128 int4 g128 zp f32", "t32 k2 e4 h1024 i512 nvfp4 f32"}) {
    const Caps caps = support::caps_of(text);
    const RandomExperts experts(caps, 1);
    const RandomCall call = random_call(caps, 32, 2);
    double squares = 0;
    const auto expected = reference_moe(caps, experts.stacked(), call.tensors).expected;
    for (double value : expected) squares += value * value;
    const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
    EXPECT_GT(rms, 0.1) << text;
    EXPECT_LT(rms, 10) << text;
  }
}

TEST(RandomCall, DistinctExpertsAndWeightsThatSumToOne) {
  const Caps caps = support::caps_of("t50 k4 e6 h8 i8");
  const RandomCall call = random_call(caps, 50, 1);
  const auto* ids = call.tensors.topk_ids.as<std::int32_t>();
  for (std::int64_t token = 0; token < 50; ++token) {
    EXPECT_EQ(std::set<std::int32_t>(ids + token * 4, ids + token * 4 + 4).size(), 4u);
    float sum = 0;
    for (int slot = 0; slot < 4; ++slot) sum += call.topk_weights[token * 4 + slot];
    EXPECT_NEAR(sum, 1, 8 * 0x1p-24);  // 4 divisions and 3 additions
  }
}

TEST(VerifyProblem, PassesAndSeesEveryFault) {
  const Problem problem = parse_problem("t1,17 k2 e8 h128 i64 nvfp4 bf16 silu");
  for (const auto& backend : support::backends()) {
    const CaseResult good = verify_problem(problem, *backend, 1);
    EXPECT_TRUE(good.ok) << good.reason;
    EXPECT_GT(good.max_error_over_bound, 0);
    for (Inject inject : {Inject::nan, Inject::zero, Inject::stale, Inject::swap})
      EXPECT_FALSE(verify_problem(problem, *backend, 1, inject).ok) << static_cast<int>(inject);
  }
}

TEST(VerifyProblem, ReportsARefusalInWords) {
  Problem problem = parse_problem("t1 k1 e2 h64 i32");
  problem.caps.hidden = 63;
  const CaseResult result = verify_problem(problem, support::native(), 1);
  EXPECT_TRUE(result.refused);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.reason.find("63"), std::string::npos) << result.reason;
}

TEST(VerifyDevice, WholeMatrixPassesInUnderAMinute) {
  const auto start = std::chrono::steady_clock::now();
  int calls = 0, last_total = 0;
  const auto results = verify_device(support::native(), Inject::none, [&](int, int total, const std::string&) {
    ++calls;
    last_total = total;
  });
  EXPECT_GT(results.size(), 300u);
  EXPECT_EQ(last_total, static_cast<int>(results.size()));
  EXPECT_EQ(calls, last_total + 1);
  for (const CaseResult& result : results) EXPECT_TRUE(result.ok) << result.name << ": " << result.reason;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

TEST(VerifyDevice, EveryFaultFailsEveryCase) {
  for (Inject inject : {Inject::nan, Inject::zero, Inject::stale, Inject::swap}) {
    const auto results = verify_device(support::native(), inject);
    ASSERT_GT(results.size(), 300u);
    for (const CaseResult& result : results)
      EXPECT_FALSE(result.ok) << result.name << " hides fault " << static_cast<int>(inject);
  }
}
