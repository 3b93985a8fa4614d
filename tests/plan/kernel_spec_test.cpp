// Kernel instances are named by entry and defines.
#include "plan/kernel_spec.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

TEST(KernelSpec, TheEntryIsTheStemOfTheSource) {
  EXPECT_EQ(KernelSpec{.source = "moe/gate_up_naive.cu"}.entry(), "gate_up_naive");
  EXPECT_EQ(KernelSpec{.source = "route.cu"}.entry(), "route");
  EXPECT_EQ(KernelSpec{.source = "a.b/route"}.entry(), "route");
}

TEST(KernelSpec, TheNameHasEveryDefine) {
  KernelSpec spec{.source = "moe/gate_up_naive.cu", .defines = {{"DTYPE", "bf16"}, {"FORMAT", "nvfp4"}}};
  EXPECT_EQ(spec.name(), "gate_up_naive<DTYPE=bf16,FORMAT=nvfp4>");
  spec.defines.clear();
  EXPECT_EQ(spec.name(), "gate_up_naive");
}

}  // namespace
}  // namespace fourfold
