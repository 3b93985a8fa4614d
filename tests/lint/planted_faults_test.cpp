// The faults of the GPU's negative controls are where they should be, and compile.
#include "gpu/planted_faults.h"

#include <gtest/gtest.h>

#include <set>

#include "cuda/jit/compiler.h"
#include "fourfold/error.h"
#include "plan/plan_data.h"
#include "support/moe_layer.h"

namespace fourfold::lint {
namespace {

TEST(PlantedFaults, EveryAnchorStandsExactlyOnceAndOneFileChanges) {
  std::set<std::string> names;
  for (const gpu_test::PlantedFault& fault : gpu_test::planted_faults()) {
    EXPECT_TRUE(names.insert(fault.name).second);
    if (fault.path.empty()) continue;
    const gpu_test::PatchedSources patched(fault);
    for (const std::string_view path : cuda::SourceTree::embedded().paths())
      EXPECT_EQ(patched.tree().text(path) != cuda::SourceTree::embedded().text(path), path == fault.path)
          << fault.name << " " << path;
  }
  EXPECT_GE(names.size(), 3u);
}

TEST(PlantedFaults, AnAnchorThatIsGoneIsAnError) {
  gpu_test::PlantedFault fault = gpu_test::planted_faults().front();
  fault.anchor = "no kernel says this";
  EXPECT_THROW(gpu_test::PatchedSources{fault}, Error);
  fault.anchor = "return";  // more than once
  EXPECT_THROW(gpu_test::PatchedSources{fault}, Error);
  EXPECT_THROW(gpu_test::planted_fault("nothing"), Error);
}

// Silence is asked for: a fault that makes the compiler talk would be refused on the GPU machine instead of run.
TEST(PlantedFaults, EveryPatchedKernelCompilesInSilence) {
  const Plan plan = fourfold::plan(support::caps_of("t300 k2 e4 h64 i32 nvfp4 bf16 silu"), device_preset("h200"));
  for (const gpu_test::PlantedFault& fault : gpu_test::planted_faults()) {
    if (fault.path.empty()) continue;
    const gpu_test::PatchedSources patched(fault);
    cuda::NvrtcCompiler compiler(patched.tree()), original(cuda::SourceTree::embedded());
    std::size_t changed = 0;
    std::set<std::string> entries;  // an instance of each kernel
    for (const KernelSpec& spec : plan.data()->kernel_specs) {
      if (patched.tree().closure(spec.source) == cuda::SourceTree::embedded().closure(spec.source)) continue;
      if (!entries.insert(spec.entry()).second) continue;
      try {
        changed += compiler.compile(spec, "sm_90a") != original.compile(spec, "sm_90a");
      } catch (const Error& error) {
        if (error.code() == ErrorCode::unavailable) GTEST_SKIP() << error.what();
        ADD_FAILURE() << fault.name << ": " << error.what();
      }
    }
    EXPECT_GT(changed, 0u) << fault.name << " changes no kernel of this plan";
  }
}

TEST(PlantedFaults, AShortWorkspaceIsShorter) {
  const Plan plan = fourfold::plan(support::caps_of("t3 k2 e4 h64 i32 nvfp4 bf16 silu"), device_preset("h200"));
  EXPECT_EQ(gpu_test::with_short_workspace(plan).workspace_bytes() + 256, plan.workspace_bytes());
  const Plan none = fourfold::plan(support::caps_of("t0 k2 e4 h64 i32 nvfp4 bf16 silu"), device_preset("h200"));
  EXPECT_THROW(gpu_test::with_short_workspace(none), Error);
}

}  // namespace
}  // namespace fourfold::lint
