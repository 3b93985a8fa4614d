// What a plan of the tensor-core kernels promises: bands, launches that fit the device, the ledger, limits of memory.
#include "plan/cuda_tile_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "corpus/corpus.h"
#include "cuda_plan_rules.h"
#include "fourfold/error.h"
#include "kernels/params/tile_params.h"
#include "plan/cuda_unit_layout.h"
#include "plan/plan_data.h"

namespace fourfold {
namespace {

Caps caps_of(std::string_view problem) { return parse_problem(problem).caps; }

PlanData data_of(std::string_view problem, std::string_view device = "h200") {
  return *plan(caps_of(problem), device_preset(device)).data();
}

// The issue that these kernels answer names both limits.
TEST(CudaTilePlan, KeepsTheWorkspaceLimitsOfTheLargeModel) {
  EXPECT_LE(data_of("t64 k8 e160 h6144 i512 nvfp4 bf16 silu").workspace_bytes, 8u << 20);
  EXPECT_LE(data_of("t3072 k8 e160 h6144 i512 nvfp4 bf16 silu").workspace_bytes, 64u << 20);
}

TEST(CudaTilePlan, BandsAreGaplessAndEachHasItsLaunches) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 2000; ++round) {
    const Caps caps = random_cuda_caps(random);
    const Plan planned = plan(caps, device_preset("h200"));
    const PlanData& data = *planned.data();
    ASSERT_EQ(data.bands.size(), data.cuda_bands.size());
    std::int64_t next = 1;
    for (std::size_t i = 0; i < data.bands.size(); ++i) {
      ASSERT_EQ(data.bands[i].min_tokens, next);
      ASSERT_GE(data.bands[i].max_tokens, next);
      next = data.bands[i].max_tokens + 1;
      ASSERT_GE(data.cuda_bands[i].launches.size(), 3u);
      ASSERT_EQ(data.cuda_bands[i].launches[0].kernel, CudaKernel::route_tiles);
      ASSERT_EQ(data.cuda_bands[i].launches[1].kernel, CudaKernel::gate_up_tiles);
    }
    ASSERT_EQ(next, caps.max_tokens + 1);
  }
}

TEST(CudaTilePlan, EveryLaunchFitsTheDeviceAndItsSpec) {
  std::mt19937_64 random(22);
  for (const char* name : {"a100", "h200", "b200", "rtx-5090"}) {
    const Device device = device_preset(name);
    for (int round = 0; round < 500; ++round) {
      const Caps caps = random_cuda_caps(random, name);
      const PlanData data = *plan(caps, device).data();
      for (std::size_t i = 0; i < data.bands.size(); ++i)
        for (const CudaLaunch& launch : data.cuda_bands[i].launches) {
          const KernelSpec& spec = data.kernel_specs.at(static_cast<std::size_t>(launch.spec));
          const std::int64_t shared = launch.shared_bytes(data.bands[i].max_tokens);
          ASSERT_LE(shared, spec.shared_bytes) << spec.name();
          ASSERT_LE(spec.shared_bytes, device.shared_memory_bytes) << name << " " << spec.name();
          for (const std::int64_t tokens : {data.bands[i].min_tokens, data.bands[i].max_tokens}) {
            const CudaGrid grid = cuda_grid(caps, launch, tokens);
            ASSERT_GE(grid.x, 1);
            ASSERT_LE(grid.x, std::int64_t{1} << 20);
            ASSERT_EQ(grid.y, 1);
          }
        }
    }
  }
}

TEST(CudaTilePlan, PanelsCoverEveryOutputColumnOnce) {
  for (const char* problem : {"t4096 k8 e160 h6144 i512", "t4096 k4 e128 h2880 i2880", "t4096 k2 e8 h8 i8"}) {
    const PlanData data = data_of(problem);
    std::int64_t next = 0;
    for (const CudaLaunch& launch : data.cuda_bands.back().launches) {
      if (launch.kernel != CudaKernel::down_rows) continue;
      EXPECT_EQ(launch.panel_begin, next) << problem;
      EXPECT_EQ(launch.panel_begin % kCudaUnitRows, 0);
      EXPECT_EQ(launch.panel_columns % kCudaUnitRows, 0);
      next += launch.panel_columns;
    }
    EXPECT_GE(next, data.caps.hidden) << problem;
  }
}

TEST(CudaTilePlan, SegmentsKeepTheRules) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 2000 && !HasFatalFailure(); ++round)
    expect_ledger_rules(plan(random_cuda_caps(random), device_preset("h200")));
}

TEST(CudaTilePlan, WorkspaceGrowsWithMaxTokens) { expect_workspace_grows(device_preset("h200"), 24); }

// Brute force: no routing makes more tiles than the bound, and some routing makes as many.
TEST(CudaTilePlan, TheTileBoundHoldsAndIsTight) {
  std::mt19937_64 random(25);
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t routes = log_uniform(random, 1, 500), experts = log_uniform(random, 1, 40);
    const std::int64_t tile = 8 << random() % 3;
    std::vector<std::int64_t> count(static_cast<std::size_t>(experts));
    for (std::int64_t i = 0; i < routes; ++i) ++count[random() % count.size()];
    std::int64_t tiles = 0;
    for (const std::int64_t tokens : count) tiles += (tokens + tile - 1) / tile;
    ASSERT_LE(tiles, max_token_tiles(routes, experts, tile));
    // One route each, the rest to the first expert in full tiles.
    const std::int64_t hit = std::min(routes, experts), rest = routes - hit;
    ASSERT_EQ(hit - 1 + (1 + rest / tile * tile + tile - 1) / tile, max_token_tiles(routes, experts, tile));
  }
}

TEST(CudaTilePlan, MaxTokensZeroLaunchesNothing) {
  const PlanData data = data_of("t0 k8 e160 h6144 i512");
  EXPECT_TRUE(data.bands.empty());
  EXPECT_TRUE(data.kernel_specs.empty());
  EXPECT_EQ(data.workspace_bytes, 0u);
  EXPECT_GT(data.weight_bytes, 0u);
}

TEST(CudaTilePlan, BatchInvariantCostsNothing) {
  const PlanData with = data_of("t64 k8 e160 h6144 i512 invariant"), without = data_of("t64 k8 e160 h6144 i512");
  EXPECT_EQ(with.kernel_specs, without.kernel_specs);
  EXPECT_EQ(with.workspace_bytes, without.workspace_bytes);
}

// Items, a token tile and a block of rows each, are counted in 32 bits by the kernels. One token less is served.
TEST(CudaTilePlan, MoreItemsThanKernelsCountAreRefused) {
  for (const char* problem : {"t2000000 k8 e4096 h64 i1048576", "t33000000 k64 e1 h64 i4096 int4 g32 relu2",
                              "t2000000000 k1 e160 h6144 i2048", "t400000 k64 e256 h8192 i1048576 mxfp4"})
    for (const char* name : {"h200", "a100", "rtx-pro-6000"}) {
      Caps caps = caps_of(problem);
      const Device device = device_preset(name);
      const Support support = can_implement(caps, device);
      ASSERT_FALSE(support.ok) << problem;
      ASSERT_NE(support.reason.find("more items than the 2147483647"), std::string::npos) << support.reason;
      const std::size_t use = support.reason.rfind("; use ");
      ASSERT_NE(use, std::string::npos) << support.reason;
      caps.max_tokens = std::stoll(support.reason.substr(use + 6));
      EXPECT_TRUE(can_implement(caps, device).ok) << problem << " on " << name << ": " << support.reason;
      ++caps.max_tokens;
      EXPECT_FALSE(can_implement(caps, device).ok) << problem << " on " << name << ": " << support.reason;
      EXPECT_EQ(largest_max_tokens(caps, device, UINT64_MAX), caps.max_tokens - 1) << problem << " on " << name;
    }
}

TEST(CudaTilePlan, ItemsOfEveryRandomPlanFit32Bits) {
  std::mt19937_64 random(26);
  std::int64_t largest = 0;
  for (int round = 0; round < 2000; ++round) {
    const PlanData data = *plan(random_cuda_caps(random), device_preset("h200")).data();
    for (std::size_t i = 0; i < data.bands.size(); ++i)
      for (const CudaLaunch& launch : data.cuda_bands[i].launches) {
        if (launch.row_tiles == 0) continue;
        const std::int64_t rows = launch.kernel == CudaKernel::gate_up_tiles ? data.caps.gate_up_rows()
                                  : launch.kernel == CudaKernel::down_rows   ? launch.panel_columns
                                                                             : 16;
        const std::int64_t tiles =
            max_token_tiles(data.bands[i].max_tokens * data.caps.top_k, data.caps.experts, launch.token_tile);
        const std::int64_t row_tiles = (rows + 15) / 16;
        const std::int64_t items = tiles * ((row_tiles + launch.row_tiles - 1) / launch.row_tiles);
        ASSERT_LE(items, INT32_MAX) << problem_text({data.caps, {data.caps.max_tokens}, {}});
        largest = std::max(largest, items);
      }
  }
  EXPECT_GT(largest, INT32_MAX / 16) << "the limit is near";
}

TEST(CudaTilePlan, EveryShapeIsLaunchedOrDeclinedWithAReason) {
  for (const char* name : {"a100", "h200", "rtx-pro-6000"})
    for (const std::string& problem : support::corpus_problems()) {
      const PlanData data = data_of(problem, name);
      std::set<std::string> declined;
      for (const Declined& entry : data.declined) {
        EXPECT_FALSE(entry.reason.empty()) << entry.candidate;
        EXPECT_TRUE(declined.insert(entry.candidate).second) << entry.candidate;
      }
      // 6 shapes of gate_up, 6 of sums, 3 of rows, and the naive family; a shape that is launched is not declined.
      std::set<std::tuple<CudaKernel, int, int>> launched;
      for (const CudaBand& band : data.cuda_bands)
        for (const CudaLaunch& launch : band.launches)
          if (launch.row_tiles > 0) launched.insert({launch.kernel, launch.row_tiles, launch.token_tile});
      EXPECT_EQ(declined.size() + launched.size(), 16u) << problem << " on " << name;
    }
}

TEST(CudaTilePlan, PricesThePackedWeights) {
  for (const std::string& problem : support::corpus_problems())
    EXPECT_EQ(data_of(problem).weight_bytes, static_cast<std::uint64_t>(cuda_unit_layout(caps_of(problem)).total_bytes))
        << problem;
}

TEST(CudaTilePlan, ADeviceWithTooLittleSharedMemoryIsRefusedInWords) {
  Device device = device_preset("h200");
  device.shared_memory_bytes = 40 << 10;
  const Support support = can_implement(caps_of("t64 k8 e160 h6144 i512"), device);
  EXPECT_FALSE(support.ok);
  EXPECT_NE(support.reason.find("40960 bytes of shared memory"), std::string::npos) << support.reason;
  device.naive_kernels = true;
  EXPECT_TRUE(can_implement(caps_of("t64 k8 e160 h6144 i512"), device).ok);
}

}  // namespace
}  // namespace fourfold
