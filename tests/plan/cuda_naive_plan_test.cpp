// What a plan of the naive kernels promises: kernels by name, grids, segments with lifetimes, exact bytes.
#include "plan/cuda_naive_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "corpus/corpus.h"
#include "cuda_plan_rules.h"
#include "fourfold/error.h"
#include "kernels/params/moe_params.h"
#include "plan/cuda_weight_layout.h"
#include "plan/plan_data.h"

namespace fourfold {
namespace {

Caps caps_of(std::string_view problem) { return parse_problem(problem).caps; }

Device naive(std::string_view name) {
  Device device = device_preset(name);
  device.naive_kernels = true;
  return device;
}

PlanData data_of(std::string_view problem, std::string_view device = "h200") {
  return *plan(caps_of(problem), naive(device)).data();
}

const Segment& segment_of(const PlanData& data, int index) { return data.segments.at(static_cast<std::size_t>(index)); }

TEST(CudaNaivePlan, NamesTheKernelsOfTheProblem) {
  const PlanData data = data_of("t64 k8 e160 h6144 i512 nvfp4 bf16 silu");
  ASSERT_EQ(data.bands.size(), 1u);
  EXPECT_EQ(data.bands[0].min_tokens, 1);
  EXPECT_EQ(data.bands[0].max_tokens, 64);
  EXPECT_EQ(data.bands[0].kernels, (std::vector<std::string>{"route_resolve", "route_sort",
                                                             "gate_up_naive<ACTIVATION=silu,DTYPE=bf16,FORMAT=nvfp4>",
                                                             "down_naive<DTYPE=bf16,FORMAT=nvfp4>"}));
  EXPECT_EQ(data.steps, (std::vector<std::string>{"route_resolve", "route_sort", "gate_up", "down"}));
}

TEST(CudaNaivePlan, EveryStepHasASpecAndTheBandNamesThemInOrder) {
  const PlanData data = data_of("t9 k2 e4 h64 i32 int4 g32 zp f16 relu2 bias");
  ASSERT_EQ(data.kernel_specs.size(), data.steps.size());
  for (std::size_t i = 0; i < data.kernel_specs.size(); ++i) {
    const KernelSpec& spec = data.kernel_specs[i];
    EXPECT_EQ(spec.name(), data.bands[0].kernels[i]);
    EXPECT_TRUE(std::is_sorted(spec.defines.begin(), spec.defines.end())) << spec.name();
    EXPECT_EQ(spec.block_threads, kernels::kNaiveThreads) << spec.name();
    EXPECT_EQ(spec.max_registers, 65536 / (kernels::kNaiveBlocks * kernels::kNaiveThreads)) << spec.name();
    EXPECT_EQ(spec.shared_bytes, 0) << spec.name();
  }
  EXPECT_EQ(data.kernel_specs[kCudaGateUp].name(), "gate_up_naive<ACTIVATION=relu2,DTYPE=f16,FORMAT=int4_zp>");
  EXPECT_EQ(data.kernel_specs[kCudaDown].name(), "down_naive<DTYPE=f16,FORMAT=int4_zp>");
}

TEST(CudaNaivePlan, KernelsDependNeitherOnSizesNorOnTheDevice) {
  const PlanData a = data_of("t1 k1 e1 h8 i8 mxfp4 bf16 situ", "a100");
  const PlanData b = data_of("t4096 k64 e4096 eg65536 h7168 i2048 mxfp4 bf16 situ bias on_input invariant", "b200");
  EXPECT_EQ(a.kernel_specs, b.kernel_specs);
}

TEST(CudaNaivePlan, TheCorpusNeedsAtMost250Instances) {
  std::set<std::string> names;
  for (const std::string& problem : support::corpus_problems())
    for (const KernelSpec& spec : data_of(problem).kernel_specs) names.insert(spec.name());
  EXPECT_EQ(names.size(), 2u + 4 * 2 + 4 * 2 * 5)
      << "routing, down of every format and dtype, gate_up of every activation";
  EXPECT_LE(names.size(), 250u);
}

TEST(CudaNaivePlan, SegmentsHaveExactBytesAndLifetimes) {
  const PlanData data = data_of("t64 k8 e160 h6144 i512 nvfp4 bf16 silu");
  const Segment& expert = segment_of(data, data.cuda.route_expert);
  EXPECT_EQ(expert.bytes, 64u * 8 * 4);
  EXPECT_EQ(expert.first_step, kCudaRouteResolve);
  EXPECT_EQ(expert.last_step, kCudaDown);
  const Segment& offsets = segment_of(data, data.cuda.expert_offsets);
  EXPECT_EQ(offsets.bytes, 161u * 4);
  EXPECT_EQ(offsets.first_step, kCudaRouteSort);
  EXPECT_EQ(offsets.last_step, kCudaGateUp);
  const Segment& sorted = segment_of(data, data.cuda.sorted_routes);
  EXPECT_EQ(sorted.bytes, 64u * 8 * 4);
  EXPECT_EQ(sorted.first_step, kCudaRouteSort);
  EXPECT_EQ(sorted.last_step, kCudaGateUp);
  const Segment& activated = segment_of(data, data.cuda.activated);
  EXPECT_EQ(activated.bytes, 64u * 8 * 512 * 2);
  EXPECT_EQ(activated.first_step, kCudaGateUp);
  EXPECT_EQ(activated.last_step, kCudaDown);
  // All four live in gate_up: 524288 + 2048 + 2048 + 644 rounded up to 768.
  EXPECT_EQ(data.workspace_bytes, 529152u);
}

TEST(CudaNaivePlan, RandomPlansKeepTheRules) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000 && !HasFatalFailure(); ++round)
    expect_ledger_rules(plan(random_cuda_caps(random), naive("h200")));
}

TEST(CudaNaivePlan, WorkspaceGrowsWithMaxTokens) { expect_workspace_grows(naive("h200"), 12); }

TEST(CudaNaivePlan, GridsFitTheDeviceAndCoverTheWork) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 2000; ++round) {
    const Caps caps = random_cuda_caps(random);
    const std::int64_t tokens = std::max<std::int64_t>(1, caps.max_tokens);
    for (CudaKernel kernel : {CudaKernel::route_resolve, CudaKernel::route_sort, CudaKernel::gate_up_naive,
                              CudaKernel::down_naive}) {
      const CudaGrid grid = cuda_naive_grid(caps, kernel, tokens);
      ASSERT_GE(grid.x, 1);
      ASSERT_LE(grid.x, (std::int64_t{1} << 31) - 1);
      ASSERT_GE(grid.y, 1);
      ASSERT_LE(grid.y, 65535);
    }
    ASSERT_GE(cuda_naive_grid(caps, CudaKernel::route_resolve, tokens).x * kCudaNaiveThreads, tokens * caps.top_k);
    ASSERT_GE(cuda_naive_grid(caps, CudaKernel::route_sort, tokens).x * kCudaNaiveThreads, caps.experts + 1);
    ASSERT_GE(cuda_naive_grid(caps, CudaKernel::gate_up_naive, tokens).x * kCudaNaiveThreads, caps.intermediate);
    ASSERT_GE(cuda_naive_grid(caps, CudaKernel::down_naive, tokens).x * kCudaNaiveThreads, caps.hidden);
  }
}

TEST(CudaNaivePlan, GridsOfAKnownCall) {
  const Caps caps = caps_of("t100000 k8 e160 h6144 i512");
  EXPECT_EQ(cuda_naive_grid(caps, CudaKernel::route_resolve, 3), (CudaGrid{1, 1}));
  EXPECT_EQ(cuda_naive_grid(caps, CudaKernel::route_resolve, 17), (CudaGrid{2, 1}));
  EXPECT_EQ(cuda_naive_grid(caps, CudaKernel::route_sort, 3), (CudaGrid{2, 1}));
  EXPECT_EQ(cuda_naive_grid(caps, CudaKernel::gate_up_naive, 3), (CudaGrid{4, 24}));
  EXPECT_EQ(cuda_naive_grid(caps, CudaKernel::gate_up_naive, 100000), (CudaGrid{4, 65535}));
  EXPECT_EQ(cuda_naive_grid(caps, CudaKernel::down_naive, 3), (CudaGrid{48, 3}));
}

TEST(CudaNaivePlan, MaxTokensZeroLaunchesNothing) {
  const PlanData data = data_of("t0 k8 e160 h6144 i512");
  EXPECT_TRUE(data.bands.empty());
  EXPECT_TRUE(data.kernel_specs.empty());
  EXPECT_EQ(data.workspace_bytes, 0u);
  EXPECT_GT(data.weight_bytes, 0u);
}

TEST(CudaNaivePlan, BatchInvariantCostsNothing) {
  const PlanData with = data_of("t64 k8 e160 h6144 i512 invariant"), without = data_of("t64 k8 e160 h6144 i512");
  EXPECT_EQ(with.kernel_specs, without.kernel_specs);
  EXPECT_EQ(with.workspace_bytes, without.workspace_bytes);
  EXPECT_EQ(std::count_if(with.notes.begin(), with.notes.end(),
                          [](const std::string& note) { return note.starts_with("batch_invariant"); }),
            1);
}

TEST(CudaNaivePlan, PricesThePackedWeights) {
  for (const std::string& problem : support::corpus_problems())
    EXPECT_EQ(data_of(problem).weight_bytes,
              static_cast<std::uint64_t>(cuda_weight_layout(caps_of(problem)).total_bytes))
        << problem;
}

}  // namespace
}  // namespace fourfold
