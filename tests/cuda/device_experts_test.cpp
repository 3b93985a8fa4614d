// Layers repeated on the device: every expert of the large layer has the bytes of its original.
#include "cuda/device_experts.h"

#include <gtest/gtest.h>

#include "cuda_backend_fixture.h"

namespace fourfold::cuda {
namespace {

class DeviceExpertsTest : public StandInTest {
 protected:
  static Plan plan_of(const std::string& problem, bool naive = false) {
    Device device = device_preset("h200");
    device.naive_kernels = naive;
    return plan(support::caps_of(problem), device);
  }
  static std::shared_ptr<const DeviceExperts> packed(const Plan& plan, const ContextRef& context) {
    const RandomExperts experts(plan.caps(), 3);
    const auto source = stacked_source(experts.stacked(), plan.caps());
    return std::make_shared<const DeviceExperts>(*plan.data(), *source, context);
  }
  /// The stand-in's device memory can be read from the host.
  static void expect_expert(const kernels::UnitMatrix& large, std::int64_t expert, const kernels::UnitMatrix& few,
                            std::int64_t original) {
    EXPECT_EQ(std::memcmp(large.units + expert * large.expert_bytes, few.units + original * few.expert_bytes,
                          static_cast<std::size_t>(few.expert_bytes)),
              0);
    const auto floats = [&](const float* a, const float* b, std::int64_t count) {
      ASSERT_EQ(a == nullptr, b == nullptr);
      for (std::int64_t i = 0; a != nullptr && i < count; ++i)
        EXPECT_EQ(a[expert * count + i], b[original * count + i]);
    };
    floats(large.global, few.global, few.global_expert_floats);
    floats(large.bias, few.bias, few.bias_expert_floats);
  }
};

TEST_F(DeviceExpertsTest, RepeatsExpertsInTurn) {
  for (const char* words :
       {"h72 i40 nvfp4 bf16 silu bias", "h64 i32 mxfp4 f16 relu2", "h64 i32 int4 g32 zp bf16 silu"}) {
    const ContextRef device = context();
    const Plan few_plan = plan_of(std::string("t1 k1 e3 ") + words), plan = plan_of(std::string("t1 k1 e7 ") + words);
    const auto few = packed(few_plan, device);
    const DeviceExperts large(*plan.data(), *few, 2);
    EXPECT_EQ(large.bytes(), plan.weight_bytes());
    EXPECT_EQ(large.caps().experts, 7);
    for (std::int64_t expert = 0; expert < 7; ++expert) {
      expect_expert(large.gate_up_units(), expert, few->gate_up_units(), (expert + 2) % 3);
      expect_expert(large.down_units(), expert, few->down_units(), (expert + 2) % 3);
    }
  }
}

TEST_F(DeviceExpertsTest, RefusesWhatIsNotTheSameLayer) {
  const ContextRef device = context();
  const auto few = packed(plan_of("t1 k1 e3 h64 i32 nvfp4 bf16 silu"), device);
  for (const char* problem :
       {"t1 k1 e7 h128 i32 nvfp4 bf16 silu", "t1 k1 e7 h64 i32 mxfp4 bf16 silu", "t1 k1 e7 h64 i32 nvfp4 f16 silu"})
    expect_error(ErrorCode::usage, {"differ"}, [&] { DeviceExperts(*plan_of(problem).data(), *few, 0); });
  expect_error(ErrorCode::usage, {"tensor-core"},
               [&] { DeviceExperts(*plan_of("t1 k1 e7 h64 i32 nvfp4 bf16 silu", true).data(), *few, 0); });
}

}  // namespace
}  // namespace fourfold::cuda
