// What can_implement accepts and refuses, at both sides of every bound, and what every plan promises.
#include "plan/problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "fourfold/error.h"
#include "plan/plan_data.h"
#include "random_caps.h"

namespace fourfold {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Caps small_caps() {
  Caps caps;
  caps.max_tokens = 64;
  caps.top_k = 4;
  caps.experts = 8;
  caps.hidden = 64;
  caps.intermediate = 32;
  return caps;
}

struct Boundary {
  const char* name;
  std::function<void(Caps&)> change;
  const char* reason;  // "" accepts, else a part of the reason
};

Activation oai(std::optional<float> limit, std::optional<float> alpha = {}, std::optional<float> beta = {}) {
  return {ActivationKind::swiglu_oai, limit, alpha, beta};
}

const std::vector<Boundary>& boundaries() {
  using K = ActivationKind;
  static const std::vector<Boundary> table{
      {"max_tokens 0", [](Caps& c) { c.max_tokens = 0; }, ""},
      {"max_tokens -1", [](Caps& c) { c.max_tokens = -1; }, "max_tokens = -1 is outside 0 .. 2147483647; use 0"},
      {"max_tokens 2^31-1", [](Caps& c) { c.max_tokens = 2147483647; }, ""},
      {"max_tokens 2^31", [](Caps& c) { c.max_tokens = 2147483648; }, "max_tokens = 2147483648"},
      {"max_tokens int64 max", [](Caps& c) { c.max_tokens = INT64_MAX; }, "use 2147483647"},
      {"top_k 0", [](Caps& c) { c.top_k = 0; }, "top_k = 0 is outside 1 .. 64; use 1"},
      {"top_k 1", [](Caps& c) { c.top_k = 1; }, ""},
      {"top_k 64", [](Caps& c) { c.top_k = 64; }, ""},
      {"top_k 65", [](Caps& c) { c.top_k = 65; }, "top_k = 65"},
      {"top_k above experts", [](Caps& c) { c.top_k = 33, c.experts = 1; }, ""},
      {"experts 0", [](Caps& c) { c.experts = 0; }, "experts = 0"},
      {"experts 4096", [](Caps& c) { c.experts = 4096; }, ""},
      {"experts 4097", [](Caps& c) { c.experts = 4097; }, "use 4096"},
      {"global_experts -1", [](Caps& c) { c.global_experts = -1; }, "global_experts = -1"},
      {"global_experts below experts", [](Caps& c) { c.global_experts = 1; }, ""},
      {"global_experts 65536", [](Caps& c) { c.global_experts = 65536; }, ""},
      {"global_experts 65537", [](Caps& c) { c.global_experts = 65537; }, "global_experts = 65537"},
      {"hidden 0", [](Caps& c) { c.hidden = 0; }, "hidden = 0 is not a multiple of 8"},
      {"hidden 4", [](Caps& c) { c.hidden = 4; }, "use 8"},
      {"hidden 8", [](Caps& c) { c.hidden = 8; }, ""},
      {"hidden 2881", [](Caps& c) { c.hidden = 2881; }, "use 2888"},
      {"hidden 2887", [](Caps& c) { c.hidden = 2887; }, "use 2888"},
      {"hidden 2^20", [](Caps& c) { c.hidden = 1 << 20; }, ""},
      {"hidden 2^20+8", [](Caps& c) { c.hidden = (1 << 20) + 8; }, "use 1048576"},
      {"hidden int64 max", [](Caps& c) { c.hidden = INT64_MAX; }, "use 1048576"},
      {"hidden int64 min", [](Caps& c) { c.hidden = INT64_MIN; }, "use 8"},
      {"intermediate 8", [](Caps& c) { c.intermediate = 8; }, ""},
      {"intermediate 130", [](Caps& c) { c.intermediate = 130; }, "intermediate = 130 is not a multiple of 8"},
      {"intermediate 24", [](Caps& c) { c.intermediate = 24; }, ""},
      {"intermediate -8", [](Caps& c) { c.intermediate = -8; }, "intermediate = -8"},
      {"nvfp4 group 32", [](Caps& c) { c.format.group_size = 32; }, "16"},
      {"nvfp4 zero points", [](Caps& c) { c.format.zero_points = true; }, "zero"},
      {"mxfp4", [](Caps& c) { c.format = FormatSpec::mxfp4(); }, ""},
      {"mxfp4 group 16",
       [](Caps& c) {
         c.format = {WeightFormat::mxfp4, 16, false};
       },
       "32"},
      {"mxfp4 zero points",
       [](Caps& c) {
         c.format = {WeightFormat::mxfp4, 32, true};
       },
       "zero"},
      {"int4 group 16", [](Caps& c) { c.format = FormatSpec::int4(16); }, ""},
      {"int4 group 96 zero points", [](Caps& c) { c.format = FormatSpec::int4(96, true); }, ""},
      {"int4 group 128", [](Caps& c) { c.format = FormatSpec::int4(128); }, ""},
      {"int4 group 256", [](Caps& c) { c.format = FormatSpec::int4(256); }, ""},
      {"int4 whole row", [](Caps& c) { c.format = FormatSpec::int4(0); }, ""},
      {"int4 group 8", [](Caps& c) { c.format = FormatSpec::int4(8); }, "8"},
      {"int4 group 48", [](Caps& c) { c.format = FormatSpec::int4(48); }, "48"},
      {"int4 group -1", [](Caps& c) { c.format = FormatSpec::int4(-1); }, "-1"},
      {"unknown format", [](Caps& c) { c.format.format = static_cast<WeightFormat>(9); }, "9"},
      {"f16", [](Caps& c) { c.activation_dtype = DType::f16; }, ""},
      {"f32", [](Caps& c) { c.activation_dtype = DType::f32; }, ""},
      {"f64", [](Caps& c) { c.activation_dtype = DType::f64; }, "activation_dtype = F64"},
      {"i32", [](Caps& c) { c.activation_dtype = DType::i32; }, "use BF16"},
      {"unknown dtype", [](Caps& c) { c.activation_dtype = static_cast<DType>(200); }, "200"},
      {"silu limit", [](Caps& c) { c.activation.limit = 7.f; }, ""},
      {"silu tiny limit", [](Caps& c) { c.activation.limit = 1e-45f; }, ""},
      {"silu limit 0", [](Caps& c) { c.activation.limit = 0.f; }, "activation.limit = 0"},
      {"silu limit -1", [](Caps& c) { c.activation.limit = -1.f; }, "activation.limit = -1"},
      {"silu limit nan", [](Caps& c) { c.activation.limit = kNan; }, "not finite"},
      {"silu limit inf", [](Caps& c) { c.activation.limit = kInfinity; }, "not finite"},
      {"silu alpha", [](Caps& c) { c.activation.alpha = 1.f; }, "only swiglu_oai"},
      {"silu beta", [](Caps& c) { c.activation.beta = 0.f; }, "only swiglu_oai"},
      {"oai", [](Caps& c) { c.activation = oai({}); }, ""},
      {"oai all", [](Caps& c) { c.activation = oai(7.f, -1.f, 0.f); }, ""},
      {"oai alpha nan", [](Caps& c) { c.activation = oai({}, kNan); }, "activation.alpha"},
      {"oai beta inf", [](Caps& c) { c.activation = oai({}, {}, kInfinity); }, "activation.beta"},
      {"oai limit 0", [](Caps& c) { c.activation = oai(0.f); }, "activation.limit"},
      {"situ", [](Caps& c) { c.activation.kind = K::situ; }, ""},
      {"situ limit",
       [](Caps& c) {
         c.activation = {K::situ, 1.f, {}, {}};
       },
       "situ has no limit"},
      {"gelu_tanh", [](Caps& c) { c.activation.kind = K::gelu_tanh; }, ""},
      {"gelu_tanh limit",
       [](Caps& c) {
         c.activation = {K::gelu_tanh, 1.f, {}, {}};
       },
       "gelu_tanh has no limit"},
      {"relu2", [](Caps& c) { c.activation.kind = K::relu2; }, ""},
      {"relu2 limit",
       [](Caps& c) {
         c.activation = {K::relu2, 1.f, {}, {}};
       },
       "relu2 has no limit"},
      {"relu2 beta",
       [](Caps& c) {
         c.activation = {K::relu2, {}, {}, 1.f};
       },
       "relu2 has no beta"},
      {"unknown activation", [](Caps& c) { c.activation.kind = static_cast<K>(77); }, "77"},
      {"weight on input, top_k 8", [](Caps& c) { c.router_weight_on_input = true, c.top_k = 8; }, ""},
      {"biases, invariant", [](Caps& c) { c.gate_up_bias = c.down_bias = c.batch_invariant = true; }, ""},
  };
  return table;
}

TEST(CanImplement, BoundaryTable) {
  ASSERT_GT(boundaries().size(), 70u);
  for (const Boundary& boundary : boundaries()) {
    Caps caps = small_caps();
    boundary.change(caps);
    const Support support = can_implement(caps, device_preset("cpu"));
    if (*boundary.reason == '\0') {
      EXPECT_TRUE(support.ok) << boundary.name << ": " << support.reason;
      EXPECT_EQ(support.reason, "") << boundary.name;
    } else {
      EXPECT_FALSE(support.ok) << boundary.name;
      EXPECT_NE(support.reason.find(boundary.reason), std::string::npos) << boundary.name << ": " << support.reason;
    }
  }
}

TEST(CanImplement, PlanThrowsUnsupportedWithTheSameReason) {
  std::int64_t refused = 0;
  for (const Boundary& boundary : boundaries()) {
    if (*boundary.reason == '\0') continue;
    Caps caps = small_caps();
    boundary.change(caps);
    try {
      plan(caps, device_preset("cpu"));
      ADD_FAILURE() << boundary.name << " was planned";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << boundary.name;
      EXPECT_EQ(error.what(), can_implement(caps, device_preset("cpu")).reason) << boundary.name;
      ++refused;
    }
  }
  EXPECT_GT(refused, 30);
}

TEST(CanImplement, CudaDevicesAreServed) {
  std::int64_t served = 0;
  for (const std::string& name : device_preset_names()) {
    if (name == "cpu") continue;
    const Support support = can_implement(small_caps(), device_preset(name));
    EXPECT_TRUE(support.ok) << name << ": " << support.reason;
    EXPECT_FALSE(plan(small_caps(), device_preset(name)).kernels().empty()) << name;
    ++served;
  }
  EXPECT_EQ(served, 6);
}

TEST(CanImplement, Fp32ActivationsAreForTheCpuOnly) {
  Caps caps = small_caps();
  caps.activation_dtype = DType::f32;
  EXPECT_NE(can_implement(caps, device_preset("h200")).reason.find("F32 runs on a CPU only"), std::string::npos);
}

TEST(CanImplement, DevicesThatCannotBeAreRefused) {
  Device device = device_preset("cpu");
  device.threads = 0;
  EXPECT_NE(can_implement(small_caps(), device).reason.find("device.threads = 0"), std::string::npos);
  device.threads = 1;
  device.isa = static_cast<CpuIsa>(9);
  EXPECT_NE(can_implement(small_caps(), device).reason.find("device.isa = 9"), std::string::npos);
  device.kind = static_cast<DeviceKind>(9);
  EXPECT_NE(can_implement(small_caps(), device).reason.find("device.kind = 9"), std::string::npos);
}

TEST(CanImplement, EveryProblemThatKeepsTheRulesIsPlanned) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 10000; ++round) {
    const Support support = can_implement(random_caps(random), random_cpu(random));
    ASSERT_TRUE(support.ok) << "round " << round << ": " << support.reason;
  }
}

TEST(Plan, RequiredWorkspaceBytesEqualsThePlan) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 10000; ++round) {
    const Caps caps = random_caps(random);
    const Device device = random_cpu(random);
    ASSERT_EQ(required_workspace_bytes(caps, device), plan(caps, device).workspace_bytes()) << "round " << round;
  }
}

TEST(Plan, WorkspaceGrowsWithMaxTokens) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 10000; ++round) {
    Caps caps = random_caps(random);
    const Device device = random_cpu(random);
    const std::uint64_t large = required_workspace_bytes(caps, device);
    const std::int64_t tokens = caps.max_tokens;
    caps.max_tokens = round % 2 ? log_uniform(random, 0, tokens) : std::max<std::int64_t>(0, tokens - 1);
    ASSERT_LE(required_workspace_bytes(caps, device), large)
        << "round " << round << ": max_tokens " << caps.max_tokens << " against " << tokens;
  }
}

TEST(Plan, EverySegmentIsAlignedAndInsideTheWorkspace) {
  std::mt19937_64 random(4);
  std::int64_t compared = 0;
  for (int round = 0; round < 2000; ++round) {
    const Plan planned = plan(random_caps(random), random_cpu(random));
    EXPECT_EQ(planned.workspace_bytes() % 256, 0u);
    for (const Segment& segment : planned.segments()) {
      ASSERT_EQ(segment.offset_bytes % 256, 0u) << segment.name;
      ASSERT_LE(segment.offset_bytes + segment.bytes, planned.workspace_bytes()) << segment.name;
      ASSERT_GE(segment.first_step, 0) << segment.name;
      ASSERT_LT(segment.last_step, static_cast<int>(planned.steps().size())) << segment.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 2000);
}

TEST(Plan, SegmentsAliveTogetherDoNotOverlap) {
  std::mt19937_64 random(5);
  std::int64_t pairs = 0;
  for (int round = 0; round < 2000; ++round) {
    const Plan planned = plan(random_caps(random), random_cpu(random));
    for (const Segment& a : planned.segments())
      for (const Segment& b : planned.segments()) {
        if (&a == &b || a.bytes == 0 || b.bytes == 0) continue;
        if (a.last_step < b.first_step || b.last_step < a.first_step) continue;
        ASSERT_TRUE(a.offset_bytes + a.bytes <= b.offset_bytes || b.offset_bytes + b.bytes <= a.offset_bytes)
            << a.name << " and " << b.name;
        ++pairs;
      }
  }
  EXPECT_GT(pairs, 2000);
}

TEST(Plan, BandsCoverEveryCountOnceWithoutGaps) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 2000; ++round) {
    const Plan planned = plan(random_caps(random), random_cpu(random));
    std::int64_t next = 1;
    for (const Band& band : planned.bands()) {
      ASSERT_EQ(band.min_tokens, next);
      ASSERT_GE(band.max_tokens, band.min_tokens);
      ASSERT_FALSE(band.kernels.empty());
      next = band.max_tokens + 1;
    }
    ASSERT_EQ(next, planned.caps().max_tokens + 1);
  }
}

TEST(Plan, BandForFindsTheBandOfBothEnds) {
  Caps caps = small_caps();
  caps.max_tokens = 1000;
  const Plan planned = plan(caps, device_preset("cpu"));
  ASSERT_FALSE(planned.bands().empty());
  for (const Band& band : planned.bands()) {
    EXPECT_EQ(&planned.band_for(band.min_tokens), &band);
    EXPECT_EQ(&planned.band_for(band.max_tokens), &band);
  }
}

TEST(Plan, BandForRefusesCountsOutside) {
  const Plan planned = plan(small_caps(), device_preset("cpu"));
  for (std::int64_t tokens : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{65}, INT64_MAX, INT64_MIN}) {
    try {
      planned.band_for(tokens);
      ADD_FAILURE() << tokens;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find("outside 1 .. 64"), std::string::npos) << error.what();
    }
  }
}

TEST(Plan, MaxTokensZeroHasNoBands) {
  Caps caps = small_caps();
  caps.max_tokens = 0;
  EXPECT_TRUE(plan(caps, device_preset("cpu")).bands().empty());
  EXPECT_TRUE(plan(caps, device_preset("cpu")).kernels().empty());
}

TEST(Plan, KernelsNamesEachOnce) {
  Caps caps = small_caps();
  caps.max_tokens = 4096;
  const Plan planned = plan(caps, device_preset("cpu"));
  const std::vector<std::string> kernels = planned.kernels();
  const std::set<std::string> unique(kernels.begin(), kernels.end());
  EXPECT_FALSE(kernels.empty());
  EXPECT_EQ(unique.size(), kernels.size());
  for (const Band& band : planned.bands())
    for (const std::string& kernel : band.kernels) EXPECT_TRUE(unique.contains(kernel)) << kernel;
}

void expect_equal(const PlanData& a, const PlanData& b) {
  EXPECT_EQ(a.caps, b.caps);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.notes, b.notes);
  EXPECT_EQ(a.workspace_bytes, b.workspace_bytes);
  EXPECT_EQ(a.weight_bytes, b.weight_bytes);
  ASSERT_EQ(a.segments.size(), b.segments.size());
  for (std::size_t i = 0; i < a.segments.size(); ++i) {
    EXPECT_EQ(a.segments[i].name, b.segments[i].name);
    EXPECT_EQ(a.segments[i].formula, b.segments[i].formula);
    EXPECT_EQ(a.segments[i].offset_bytes, b.segments[i].offset_bytes);
    EXPECT_EQ(a.segments[i].bytes, b.segments[i].bytes);
  }
  ASSERT_EQ(a.bands.size(), b.bands.size());
  for (std::size_t i = 0; i < a.bands.size(); ++i) {
    EXPECT_EQ(a.bands[i].max_tokens, b.bands[i].max_tokens);
    EXPECT_EQ(a.bands[i].kernels, b.bands[i].kernels);
    EXPECT_EQ(a.bands[i].token_tile, b.bands[i].token_tile);
    EXPECT_EQ(a.bands[i].column_tile, b.bands[i].column_tile);
  }
  ASSERT_EQ(a.declined.size(), b.declined.size());
  for (std::size_t i = 0; i < a.declined.size(); ++i) EXPECT_EQ(a.declined[i].reason, b.declined[i].reason);
}

TEST(Plan, SameInputsGiveTheSamePlan) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const Caps caps = random_caps(random);
    const Device device = random_cpu(random);
    expect_equal(*plan(caps, device).data(), *plan(caps, device).data());
  }
}

TEST(Plan, TheEnvironmentChangesNothing) {
  const Plan before = plan(small_caps(), device_preset("cpu"));
  setenv("FOURFOLD_CPU_ISA", "portable", 1);
  setenv("FOURFOLD_THREADS", "3", 1);
  const Plan after = plan(small_caps(), device_preset("cpu"));
  unsetenv("FOURFOLD_CPU_ISA");
  unsetenv("FOURFOLD_THREADS");
  expect_equal(*before.data(), *after.data());
}

TEST(Plan, ActivationNamesAreThePublicOnes) {
  EXPECT_EQ(activation_name(ActivationKind::silu), "silu");
  EXPECT_EQ(activation_name(ActivationKind::swiglu_oai), "swiglu_oai");
  EXPECT_EQ(activation_name(ActivationKind::situ), "situ");
  EXPECT_EQ(activation_name(ActivationKind::gelu_tanh), "gelu_tanh");
  EXPECT_EQ(activation_name(ActivationKind::relu2), "relu2");
  EXPECT_EQ(activation_name(static_cast<ActivationKind>(5)), "unknown");
}

TEST(Plan, IsaNamesAreThePublicOnes) {
  EXPECT_EQ(cpu_isa_name(CpuIsa::portable), "portable");
  EXPECT_EQ(cpu_isa_name(CpuIsa::avx2), "avx2");
  EXPECT_EQ(cpu_isa_name(CpuIsa::avx512), "avx512");
  EXPECT_EQ(cpu_isa_name(CpuIsa::avx512_bf16), "avx512_bf16");
}

}  // namespace
}  // namespace fourfold
