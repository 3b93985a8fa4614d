// Values at the edges: NaN and infinity in one token, zeros, extreme scales (BL-23, 24), fp16 near its end.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/int4_experts.h"
#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;
using support::Bytes;
using support::MoeLayer;

namespace {

constexpr const char* kProblems[] = {"t33 k2 e5 h72 i40 nvfp4 bf16 silu", "t33 k2 e5 h72 i40 mxfp4 f16 swiglu_oai bias",
                                     "t33 k2 e5 h64 i48 int4 g32 zp bf16 gelu_tanh", "t33 k2 e5 h64 i48 nvfp4 f32 situ",
                                     "t33 k2 e5 h72 i40 mxfp4 bf16 relu2"};

void set_x(RandomCall& call, std::int64_t index, double value) {
  const DType dtype = call.tensors.x.dtype;
  const Bytes one = support::in_dtype({value}, dtype);
  std::memcpy(call.x.data() + index * one.size(), one.data(), one.size());
}

/// Stacked tensors copied into memory that a test may write.
struct WritableExperts {
  StackedExperts stacked;
  std::vector<std::vector<std::byte>> storage;
  explicit WritableExperts(const StackedExperts& source) : stacked(source) {
    for (ConstTensorView* view :
         {&stacked.gate_up_codes, &stacked.gate_up_scales, &stacked.gate_up_zeros, &stacked.gate_up_global,
          &stacked.gate_up_bias, &stacked.down_codes, &stacked.down_scales, &stacked.down_zeros, &stacked.down_global,
          &stacked.down_bias}) {
      if (view->absent()) continue;
      const auto* bytes = view->as<std::byte>();
      storage.emplace_back(bytes, bytes + view->bytes());
      view->data = storage.back().data();
    }
  }
  template <class T = std::uint8_t>
  static T* write(ConstTensorView view) {
    return static_cast<T*>(const_cast<void*>(view.data));
  }
};

}  // namespace

class SpecialValues : public testing::TestWithParam<const char*> {};

TEST_P(SpecialValues, NanAndInfinityStayInTheirToken) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  const std::size_t row_bytes = caps.hidden * dtype_bits(caps.activation_dtype) / 8;
  for (const auto& backend : support::backends()) {
    const MoeLayer layer(caps, experts.stacked(), *backend);
    for (std::int64_t tokens : {1, 4, 9, 33})
      for (double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()}) {
        RandomCall call = random_call(caps, tokens, 3);
        const Bytes before = layer.run(call.tensors);
        const std::int64_t sick = tokens / 2;
        set_x(call, sick * caps.hidden + 3, value);
        const Bytes after = layer.run(call.tensors);
        ASSERT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, after)) << value;
        for (std::int64_t token = 0; token < tokens; ++token)
          EXPECT_EQ(std::memcmp(before.data() + token * row_bytes, after.data() + token * row_bytes, row_bytes) == 0,
                    token != sick)
              << token;
      }
  }
}

TEST_P(SpecialValues, ANanWeightTouchesItsTokenOnly) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  RandomCall call = random_call(caps, 9, 3);
  call.topk_weights[4 * 2] = std::numeric_limits<float>::quiet_NaN();
  const Bytes out = layer.run(call.tensors);
  EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, out));
  for (std::int64_t token = 0; token < 9; ++token)
    EXPECT_EQ(std::isnan(support::element(out, caps.activation_dtype, token * caps.hidden)), token == 4);
}

// A dead route's weight is not looked at: adding zero is exact.
TEST_P(SpecialValues, ANanWeightOfADeadRouteAddsZero) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  RandomCall call = random_call(caps, 3, 3);
  std::vector<std::int64_t> ids = support::get_ids(call);
  ids[2] = -1;
  ids[5] = 77;
  support::set_ids(call, ids);
  const Bytes clean = layer.run(call.tensors);
  call.topk_weights[2] = call.topk_weights[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(layer.run(call.tensors), clean);
}

TEST_P(SpecialValues, AllZeroTokensGiveZerosWithoutBias) {
  Caps caps = support::caps_of(GetParam());
  caps.gate_up_bias = caps.down_bias = false;
  if (caps.activation.kind == ActivationKind::swiglu_oai) caps.activation.beta = 0.25f;
  const RandomExperts experts(caps, 1);
  RandomCall call = random_call(caps, 9, 3);
  std::fill(call.x.begin(), call.x.end(), std::byte{0});
  const Bytes out = MoeLayer(caps, experts.stacked()).run(call.tensors);
  for (std::int64_t i = 0; i < 9 * caps.hidden; ++i) EXPECT_EQ(support::element(out, caps.activation_dtype, i), 0);
}

// Arguments far outside where exp is finite.
TEST_P(SpecialValues, HugeGatesAreFiniteWhereTheDefinitionIs) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  for (const auto& backend : support::backends()) {
    const MoeLayer layer(caps, experts.stacked(), *backend);
    for (double scale : {20.0, 300.0}) {
      RandomCall call = random_call(caps, 9, 3);
      for (std::int64_t i = 0; i < 9 * caps.hidden; ++i)
        set_x(call, i, scale * support::element(call.x, caps.activation_dtype, i));
      EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors))) << scale;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Problems, SpecialValues, testing::ValuesIn(kProblems));

// gate = 20 (its sigmoid is 1 in fp32 to 2e-9), up = code value * 2^(byte - 127) * x, down = 1: the output is 20 up.
TEST(E8m0, EveryNamedByteIsExact) {
  for (const auto& backend : support::backends())
    for (DType dtype : {DType::f32, DType::bf16}) {
      Caps caps = support::caps_of("t1 k1 e1 h64 i8 mxfp4 f32 silu");
      caps.activation_dtype = dtype;
      for (int byte : {0, 1, 7, 64, 102, 103, 112, 113, 126, 127, 142, 143, 200, 247, 248, 254}) {
        WritableExperts experts(RandomExperts(caps, 1).stacked());
        std::memset(experts.write(experts.stacked.gate_up_codes), 0, experts.stacked.gate_up_codes.bytes());
        std::memset(experts.write(experts.stacked.down_codes), 0, experts.stacked.down_codes.bytes());
        std::memset(experts.write(experts.stacked.gate_up_scales), 127, experts.stacked.gate_up_scales.bytes());
        std::memset(experts.write(experts.stacked.down_scales), 127, experts.stacked.down_scales.bytes());
        experts.write(experts.stacked.gate_up_codes)[0] = 2;            // gate row 0, k = 0: 1.0
        experts.write(experts.stacked.gate_up_codes)[8 * 32 + 16] = 1;  // up row 0, k = 32: 0.5
        experts.write(experts.stacked.gate_up_scales)[8 * 2 + 1] = static_cast<std::uint8_t>(byte);
        experts.write(experts.stacked.down_codes)[0] = 2;  // out 0 from intermediate 0
        // x = 2^(128 - byte) makes up = 0.5 * 2 = 1 for all but the largest and smallest bytes. x and its product with
        // the code 0.5 stay normal numbers: the bf16 dot product flushes others (the plan says so).
        const int exponent = std::max(-125, std::min(127, 128 - byte));
        RandomCall call = random_call(caps, 1, 1);
        std::vector<double> x(64, 0.0);
        x[0] = 20;
        x[32] = std::ldexp(1.0, exponent);
        call.x = support::in_dtype(x, dtype);
        call.tensors.x.data = call.x.data();
        call.topk_weights = {1};
        call.tensors.topk_weights.data = call.topk_weights.data();
        const Bytes out = MoeLayer(caps, experts.stacked, *backend).run(call.tensors);
        const double up = std::ldexp(0.5, byte - 127 + exponent);
        EXPECT_EQ(support::element(out, dtype, 0), 20 * up)
            << "byte " << byte << " on " << cpu_isa_name(backend->device().isa);
      }
    }
}

TEST(E8m0, NanByteMakesItsRowsNan) {
  const Caps caps = support::caps_of("t5 k1 e2 h64 i32 mxfp4 bf16 silu");
  WritableExperts experts(RandomExperts(caps, 1).stacked());
  experts.write(experts.stacked.down_scales)[64 + 7] = 255;  // expert 1, row 7
  RandomCall call = random_call(caps, 5, 1);
  support::set_ids(call, {0, 1, 0, 1, 0});
  for (const auto& backend : support::backends()) {
    const Bytes out = MoeLayer(caps, experts.stacked, *backend).run(call.tensors);
    EXPECT_TRUE(support::fits_oracle(caps, experts.stacked, call.tensors, out));
    for (std::int64_t token = 0; token < 5; ++token)
      for (std::int64_t column = 0; column < 64; ++column)
        EXPECT_EQ(std::isnan(support::element(out, DType::bf16, token * 64 + column)), token % 2 == 1 && column == 7);
  }
}

/// Scale bytes low .. low + count - 1 in turn, in both projections, on every instruction set.
void expect_scales_fit_the_oracle(const Caps& caps, int low, int count) {
  WritableExperts experts(RandomExperts(caps, 1).stacked());
  for (ConstTensorView view : {experts.stacked.gate_up_scales, experts.stacked.down_scales})
    for (std::int64_t i = 0; i < view.bytes(); ++i)
      experts.write(view)[i] = static_cast<std::uint8_t>(low + i * 7 % count);
  const RandomCall call = random_call(caps, 5, 1);
  for (const auto& backend : support::backends())
    EXPECT_TRUE(support::fits_oracle(caps, experts.stacked, call.tensors,
                                     MoeLayer(caps, experts.stacked, *backend).run(call.tensors)))
        << low << " on " << cpu_isa_name(backend->device().isa);
}

TEST(E8m0, AllOrdinaryBytesFitTheOracle) {
  const Caps caps = support::caps_of("t5 k2 e4 h96 i64 mxfp4 bf16 silu");
  for (const auto& [low, count] : {std::pair{96, 12}, std::pair{110, 10}, std::pair{124, 6}, std::pair{1, 20}})
    expect_scales_fit_the_oracle(caps, low, count);
}

TEST(E4m3, SubnormalNegativeAndZeroScalesAreHonoured) {
  const Caps caps = support::caps_of("t5 k2 e4 h96 i64 nvfp4 bf16 silu");
  for (const auto& [low, count] :
       {std::pair{0, 8}, std::pair{1, 7}, std::pair{0x80, 8}, std::pair{0xb8, 16}, std::pair{0, 1}})
    expect_scales_fit_the_oracle(caps, low, count);
}

TEST(E4m3, NanBytePropagates) {
  const Caps caps = support::caps_of("t4 k1 e2 h64 i32 nvfp4 bf16 silu");
  for (int byte : {0x7f, 0xff}) {
    WritableExperts experts(RandomExperts(caps, 1).stacked());
    experts.write(experts.stacked.gate_up_scales)[3] = static_cast<std::uint8_t>(byte);  // expert 0, gate row 0
    RandomCall call = random_call(caps, 4, 1);
    support::set_ids(call, {0, 1, 0, 1});
    const Bytes out = MoeLayer(caps, experts.stacked).run(call.tensors);
    EXPECT_TRUE(support::fits_oracle(caps, experts.stacked, call.tensors, out));
    EXPECT_TRUE(std::isnan(support::element(out, DType::bf16, 0)));
    EXPECT_FALSE(std::isnan(support::element(out, DType::bf16, 64)));
  }
}

TEST(Globals, ThatAreNotPositiveAndFiniteAreRefused) {
  const Caps caps = support::caps_of("t1 k1 e2 h64 i32 nvfp4 bf16 silu");
  for (float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (bool down : {false, true}) {
      WritableExperts experts(RandomExperts(caps, 1).stacked());
      experts.write<float>(down ? experts.stacked.down_global : experts.stacked.gate_up_global)[1] = bad;
      try {
        MoeLayer(caps, experts.stacked);
        FAIL() << bad << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_input) << error.what();
      }
    }
}

// All 16 codes at every position, both nibbles, through the whole operation.
TEST(Codes, EveryCodeIsExact) {
  for (const char* text : {"t1 k1 e1 h32 i16 nvfp4 f32 relu2", "t1 k1 e1 h32 i16 mxfp4 f32 relu2",
                           "t1 k1 e1 h32 i16 int4 g32 f32 relu2"}) {
    const Caps caps = support::caps_of(text);
    WritableExperts experts(RandomExperts(caps, 1).stacked());
    for (std::int64_t i = 0; i < experts.stacked.gate_up_codes.bytes(); ++i)
      experts.write(experts.stacked.gate_up_codes)[i] = static_cast<std::uint8_t>(i % 16 * 17);
    for (std::int64_t hot = 0; hot < 32; ++hot) {
      RandomCall call = random_call(caps, 1, 1);
      std::vector<double> x(32, 0.0);
      x[hot] = 1;
      call.x = support::in_dtype(x, DType::f32);
      call.tensors.x.data = call.x.data();
      for (const auto& backend : support::backends())
        EXPECT_TRUE(support::fits_oracle(caps, experts.stacked, call.tensors,
                                         MoeLayer(caps, experts.stacked, *backend).run(call.tensors)))
            << text << " k " << hot;
    }
  }
}

TEST(Fp16, NearItsEndAndBeyond) {
  // relu2 of x, down weight 1: 255^2 = 65025 rounds to 65024, 256^2 = 65536 is infinite.
  const Caps caps = support::caps_of("t2 k1 e1 h8 i8 int4 g16 f16 relu2");
  support::Int4Experts experts(caps);
  for (int row = 0; row < 8; ++row) {
    experts.up(0, row, row, 1);
    experts.down(0, row, row, 1);
  }
  RandomCall call = random_call(caps, 2, 1);
  call.x = support::in_dtype({255, 256, 0, 1, 2, 3, 4, 5, 250, 5, 4, 3, 2, 1, 0, 255}, DType::f16);
  call.tensors.x.data = call.x.data();
  call.topk_weights = {1, 1};
  call.tensors.topk_weights.data = call.topk_weights.data();
  for (const auto& backend : support::backends()) {
    const Bytes out = MoeLayer(caps, experts.stacked(), *backend).run(call.tensors);
    EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, out));
    EXPECT_EQ(support::element(out, DType::f16, 8), 62496);  // 62500, nearest even multiple of 32
    EXPECT_EQ(support::element(out, DType::f16, 15), 65024);
  }
}

// Every 16-bit pattern as the scale of a row, NaN and infinities included: out[n] = 1 * scale[n].
TEST(Int4Scales, EveryPatternIsExact) {
  constexpr std::int64_t kPatterns = 65536;
  Caps caps = support::caps_of("t1 k1 e1 h65536 i16 int4 g16 f32 relu2");
  for (const DType dtype : {DType::f16, DType::bf16}) {
    support::Int4Experts weights(caps);
    weights.up(0, 0, 0, 1);
    for (std::int64_t row = 0; row < kPatterns; ++row) weights.down(0, row, 0, 1);
    StackedExperts stacked = weights.stacked();
    std::vector<std::uint16_t> scales(kPatterns);
    for (std::int64_t row = 0; row < kPatterns; ++row) scales[row] = static_cast<std::uint16_t>(row);
    stacked.down_scales = ConstTensorView(scales.data(), dtype, {1, kPatterns, 1});
    const auto* bytes = reinterpret_cast<const std::byte*>(scales.data());
    const Bytes patterns(bytes, bytes + 2 * kPatterns);
    // The first projection's scales are 1; a stack has one scale dtype a tensor, so they may stay bf16.
    RandomCall call = random_call(caps, 1, 1);
    std::vector<double> x(kPatterns, 0.0);
    x[0] = 1;
    call.x = support::in_dtype(x, DType::f32);
    call.tensors.x.data = call.x.data();
    call.topk_weights = {1};
    call.tensors.topk_weights.data = call.topk_weights.data();
    for (const auto& backend : support::backends()) {
      const Bytes out = MoeLayer(caps, stacked, *backend).run(call.tensors);
      std::int64_t wrong = 0;
      for (std::int64_t row = 0; row < kPatterns; ++row) {
        const double expected = support::element(patterns, dtype, row);
        const double got = support::element(out, DType::f32, row);
        wrong += std::isnan(expected) ? !std::isnan(got) : got != expected;
      }
      EXPECT_EQ(wrong, 0) << dtype_name(dtype) << " on " << cpu_isa_name(backend->device().isa);
    }
  }
}
