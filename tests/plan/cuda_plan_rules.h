// What every CUDA plan keeps, whichever kernels it has: random problems that a GPU serves, and the rules of its ledger.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/cuda_plan.h"
#include "random_caps.h"

namespace fourfold {

/// Random caps that a GPU serves.
inline Caps random_cuda_caps(std::mt19937_64& random, const char* device = "h200") {
  return servable_by_gpu(random_caps(random), device_preset(device));
}

/// Segments are aligned, lie inside the workspace, live in steps of the plan, and share no byte in a common step.
inline void expect_ledger_rules(const Plan& planned) {
  EXPECT_EQ(planned.workspace_bytes() % 256, 0u);
  EXPECT_EQ(planned.bands().empty(), planned.caps().max_tokens == 0);
  for (const Segment& a : planned.segments()) {
    ASSERT_EQ(a.offset_bytes % 256, 0u) << a.name;
    ASSERT_LE(a.offset_bytes + a.bytes, planned.workspace_bytes()) << a.name;
    ASSERT_LT(a.last_step, static_cast<int>(planned.steps().size())) << a.name;
    for (const Segment& b : planned.segments()) {
      if (&a == &b || a.bytes == 0 || b.bytes == 0 || a.last_step < b.first_step || b.last_step < a.first_step)
        continue;
      ASSERT_TRUE(a.offset_bytes + a.bytes <= b.offset_bytes || b.offset_bytes + b.bytes <= a.offset_bytes)
          << a.name << " and " << b.name;
    }
  }
}

/// More max_tokens never needs fewer bytes.
inline void expect_workspace_grows(const Device& device, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Caps caps = servable_by_gpu(random_caps(random), device);
    const std::uint64_t large = required_workspace_bytes(caps, device);
    caps.max_tokens = log_uniform(random, 0, caps.max_tokens);
    ASSERT_LE(required_workspace_bytes(caps, device), large) << "round " << round;
  }
}

}  // namespace fourfold
