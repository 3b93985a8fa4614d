// The arithmetic of the naive CUDA kernels, their text compiled as C++ and run thread by thread on the host. It proves
// what a thread computes from its arguments; it does not prove the launch, the memory of a GPU or what its compiler
// does.
#include "support/naive_on_host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;

namespace {

constexpr const char* kFormats[] = {"nvfp4",     "mxfp4",       "int4 g16", "int4 g32 zp",
                                    "int4 g128", "int4 g96 zp", "int4 grow"};
constexpr const char* kDTypes[] = {"bf16", "f16"};
constexpr const char* kActivations[] = {"silu", "silu limit=0.5", "swiglu_oai", "swiglu_oai limit=2 alpha=1.2 beta=0.5",
                                        "situ", "gelu_tanh",      "relu2"};

Backend& host() {
  static const std::shared_ptr<Backend> backend = support::naive_on_host();
  return *backend;
}

}  // namespace

TEST(NaiveOnHost, EveryFormatDTypeAndActivation) {
  std::uint64_t seed = 0;
  for (const char* format : kFormats)
    for (const char* dtype : kDTypes)
      for (const char* activation : kActivations)
        for (const char* options : {"", " bias", " on_input", " eg11 bias on_input"}) {
          const Caps caps =
              support::caps_of(std::string("t7 k3 e5 h136 i72 ") + format + " " + dtype + " " + activation + options);
          EXPECT_TRUE(support::problem_fits(caps, 7, ++seed, host(),
                                            {.ids_are_64_bit = seed % 2 == 0, .plant_dead_ids = true}));
        }
  EXPECT_EQ(seed, 7u * 2 * 7 * 4);
}

TEST(NaiveOnHost, TheSmallestAndSomeOddSizes) {
  for (const char* sizes : {"t1 k1 e1 h8 i8 ", "t3 k64 e2 h24 i8 ", "t130 k2 e300 h8 i136 ", "t2 k1 e4096 h16 i16 ",
                            "t3 k64 e4096 h8 i8 "})
    for (const char* format : kFormats) {
      const Caps caps = support::caps_of(std::string(sizes) + format + " bf16 silu");
      EXPECT_TRUE(support::problem_fits(caps, caps.max_tokens, 5, host(), {.plant_dead_ids = true}));
    }
}

TEST(NaiveOnHost, LongRows) {
  for (const char* format : {"nvfp4", "mxfp4", "int4 g128", "int4 g32 zp", "int4 grow"})
    for (const char* dtype : kDTypes)
      for (const char* sizes : {"t3 k1 e1 h2312 i136 ", "t3 k1 e1 h136 i2312 "})
        EXPECT_TRUE(
            support::problem_fits(support::caps_of(std::string(sizes) + format + " " + dtype + " silu"), 3, 9, host()));
}

// Shapes with residues, poisoned and replayed workspaces, empty experts, one expert for all, dead tokens.
TEST(NaiveOnHost, PassesTheDeviceMatrix) {
  const std::vector<CaseResult> results = verify_device(host(), Inject::none);
  EXPECT_GT(results.size(), 20u);
  for (const CaseResult& result : results) EXPECT_TRUE(result.ok) << result.name << ": " << result.reason;
}

TEST(NaiveOnHost, PassesEveryCaseFileWith16BitActivations) {
  std::size_t passed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FOURFOLD_SOURCE_DIR "/tests/data/cases")) {
    if (entry.path().extension() != ".safetensors") continue;
    const CaseResult result = run_case(entry.path().string(), host());
    EXPECT_TRUE(result.ok) << result.name << ": " << result.reason;
    passed += result.ok;
  }
  EXPECT_GT(passed, 30u);
}

TEST(NaiveOnHost, PlantedFaultsAreSeen) {
  const std::string file = FOURFOLD_SOURCE_DIR "/tests/data/cases/plain_nvfp4.safetensors";
  for (Inject fault : {Inject::nan, Inject::zero, Inject::stale, Inject::swap})
    EXPECT_FALSE(run_case(file, host(), fault).ok) << static_cast<int>(fault);
}

TEST(NaiveOnHost, TheOrderOfThreadsChangesNoBit) {
  const std::shared_ptr<Backend> backwards = support::naive_on_host(support::ThreadOrder::descending);
  for (const char* format : kFormats) {
    const Caps caps = support::caps_of(std::string("t9 k3 e7 h72 i40 ") + format + " bf16 silu bias");
    const RandomExperts experts(caps, 3);
    const RandomCall call = random_call(caps, 9, 4, {.plant_dead_ids = true});
    std::uint32_t forward_invalid = 0, backward_invalid = 0;
    const support::Bytes forward =
        support::MoeLayer(caps, experts.stacked(), host()).run(call.tensors, &forward_invalid);
    const support::Bytes backward =
        support::MoeLayer(caps, experts.stacked(), *backwards).run(call.tensors, &backward_invalid);
    EXPECT_EQ(forward, backward) << format;
    EXPECT_EQ(forward_invalid, backward_invalid) << format;
    EXPECT_GT(forward_invalid, 0u) << format;
  }
}

TEST(NaiveOnHost, ATokenHasTheSameBitsAloneAndInABatch) {
  const Caps caps = support::caps_of("t16 k4 e6 h72 i40 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 8);
  const RandomCall call = random_call(caps, 16, 9);
  const support::MoeLayer layer(caps, experts.stacked(), host());
  const support::Bytes all = layer.run(call.tensors);
  const std::size_t row = all.size() / 16;
  for (std::int64_t token = 0; token < 16; ++token) {
    const support::Bytes alone = layer.run(support::rows_of(call.tensors, token, 1));
    ASSERT_EQ(alone.size(), row);
    EXPECT_EQ(std::memcmp(alone.data(), all.data() + token * row, row), 0) << token;
  }
}

// Byte 254 is 2^127: 6 * 2^127 is no fp32 number, yet its product with a small x is. Byte 0 is the subnormal 2^-127.
TEST(NaiveOnHost, EveryE8m0ScaleIsExact) {
  const Caps caps = support::caps_of("t1 k1 e1 h64 i8 mxfp4 bf16 silu");
  const RandomExperts random(caps, 1);
  std::vector<std::uint8_t> first_codes(16 * 32), first_scales(16 * 2), down_codes(64 * 4), down_scales(64, 127);
  StackedExperts experts = random.stacked();
  experts.gate_up_codes.data = first_codes.data();
  experts.gate_up_scales.data = first_scales.data();
  experts.down_codes.data = down_codes.data();
  experts.down_scales.data = down_scales.data();
  down_codes[0] = 2;             // out 0 = 1 * intermediate 0
  first_codes[0] = 2;            // gate row 0, k = 0: 1.0
  first_codes[8 * 32 + 16] = 7;  // up row 0, k = 32: 6.0
  for (int byte = 0; byte < 255; ++byte) {
    std::fill(first_scales.begin(), first_scales.end(), std::uint8_t{127});
    first_scales[8 * 2 + 1] = static_cast<std::uint8_t>(byte);
    const int exponent = std::clamp(127 - byte, -133, 127);  // of x, subnormals of bf16 included
    RandomCall call = random_call(caps, 1, 1);
    std::vector<double> x(64, 0.0);
    x[0] = 20;  // silu(20) = 20
    x[32] = std::ldexp(1.0, exponent);
    call.x = support::in_dtype(x, DType::bf16);
    call.tensors.x.data = call.x.data();
    call.topk_weights = {1};
    call.tensors.topk_weights.data = call.topk_weights.data();
    const support::Bytes out = support::MoeLayer(caps, experts, host()).run(call.tensors);
    EXPECT_EQ(support::element(out, DType::bf16, 0), 20 * std::ldexp(6.0, byte - 127 + exponent)) << byte;
  }
}

TEST(NaiveOnHost, Int4ScalesOfEveryDType) {
  const Caps caps = support::caps_of("t5 k2 e3 h64 i32 int4 g32 bf16 silu");
  const RandomExperts random(caps, 2);
  const RandomCall call = random_call(caps, 5, 3);
  const support::Bytes expected = support::MoeLayer(caps, random.stacked(), host()).run(call.tensors);
  StackedExperts experts = random.stacked();
  support::Bytes wide[2], half[2];
  for (const DType dtype : {DType::f32, DType::f16}) {
    support::Bytes* converted = dtype == DType::f32 ? wide : half;
    int at = 0;
    for (ConstTensorView StackedExperts::*scales : {&StackedExperts::gate_up_scales, &StackedExperts::down_scales}) {
      const ConstTensorView& from = random.stacked().*scales;
      support::Bytes bytes(static_cast<std::size_t>(from.bytes()));
      std::memcpy(bytes.data(), from.data, bytes.size());
      std::vector<double> values;
      for (std::int64_t i = 0; i < from.elements(); ++i) values.push_back(support::element(bytes, from.dtype, i));
      converted[at] = support::in_dtype(values, dtype);  // 8 bits of mantissa near 0.03: exact in fp16 too
      (experts.*scales).data = converted[at++].data();
      (experts.*scales).dtype = dtype;
    }
    EXPECT_EQ(support::MoeLayer(caps, experts, host()).run(call.tensors), expected) << dtype_name(dtype);
  }
}
