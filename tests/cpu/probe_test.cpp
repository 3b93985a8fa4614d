// The probes give numbers that a machine can have.
#include "cpu/probe.h"

#include <gtest/gtest.h>

#include "cpu/isa.h"

namespace fourfold::cpu {
namespace {

TEST(Probe, FiguresArePlausible) {
  const Probes probes = measure(cpu_device(Settings{}));
  EXPECT_GT(probes.read_gb_per_s, 0.1);
  EXPECT_LT(probes.read_gb_per_s, 10'000);
  EXPECT_GT(probes.f32_gflop_per_s, 0.5);
  EXPECT_GE(probes.bf16_gflop_per_s, 0.9 * probes.f32_gflop_per_s);
  EXPECT_LT(probes.bf16_gflop_per_s, 1e6);
}

}  // namespace
}  // namespace fourfold::cpu
