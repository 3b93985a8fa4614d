// Bytes of experts and limits of devices.
#include <gtest/gtest.h>

#include "fourfold/benchmark.h"

namespace fourfold {
namespace {

Caps caps_of(const char* problem) { return parse_problem(problem).caps; }

TEST(Floor, ExpertsHaveTheBytesOfTheirFormats) {
  const double weights = 3.0 * 6144 * 512;
  EXPECT_EQ(expert_weight_bytes(caps_of("t1 k8 e160 h6144 i512 nvfp4 bf16 silu")), weights * 0.5625);
  EXPECT_EQ(expert_weight_bytes(caps_of("t1 k8 e160 h6144 i512 mxfp4 bf16 silu")), weights * (0.5 + 1.0 / 32));
  EXPECT_EQ(expert_weight_bytes(caps_of("t1 k8 e160 h6144 i512 int4 g128 bf16 silu")), weights * (0.5 + 2.0 / 128));
  EXPECT_EQ(expert_weight_bytes(caps_of("t1 k8 e160 h6144 i512 int4 g32 zp bf16 silu")), weights * (0.5 + 2.5 / 32));
  EXPECT_EQ(expert_weight_bytes(caps_of("t1 k8 e160 h6144 i512 nvfp4 bf16 relu2")), weights / 3 * 2 * 0.5625);
}

TEST(Floor, LimitsGoByTheNameOfTheDevice) {
  EXPECT_EQ(floor_limits("NVIDIA H200").bytes_per_s, 4.3e12);
  EXPECT_EQ(floor_limits("NVIDIA H200 NVL").flop_per_s, 794e12);
  EXPECT_EQ(floor_limits("Stand-in GPU 0").bytes_per_s, 0);
  EXPECT_EQ(floor_limits("").flop_per_s, 0);
}

}  // namespace
}  // namespace fourfold
