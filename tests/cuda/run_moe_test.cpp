// Four launches on the stream that was bound: which function, which grid, which argument, and what a failure leaves.
#include "cuda/run_moe.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "cuda/moe_params.h"
#include "cuda_backend_fixture.h"
#include "plan/cuda_naive_plan.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {
namespace {

class RunMoeTest : public CudaBackendTest {
 protected:
  /// Whether launch number `launch` had `params` as its argument, byte by byte.
  template <class Params>
  testing::AssertionResult launched_with(std::uint64_t launch, const Params& params) const {
    std::array<std::byte, sizeof(Params)> bytes{};
    const std::uint64_t size = control_.get_params(launch, bytes.data(), bytes.size());
    if (size != sizeof(Params)) return testing::AssertionFailure() << size << " bytes, not " << sizeof(Params);
    if (std::memcmp(bytes.data(), &params, sizeof(Params)) != 0) return testing::AssertionFailure() << "other bytes";
    return testing::AssertionSuccess();
  }
  static std::string grid_text(const PlanData& plan, CudaNaiveStep step, std::int64_t tokens) {
    const CudaGrid grid = cuda_grid(plan.caps, plan.cuda_bands[0].launches[static_cast<std::size_t>(step)], tokens);
    return fmt::format(" grid={}x{}x1 block=128x1x1 shared=0 ", grid.x, grid.y);
  }
};

TEST_F(RunMoeTest, EveryKernelGetsItsArgument) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  std::uint64_t launch = 0;
  for (const std::int64_t tokens : {1, 6}) {
    const Binding binding = layer.bind(tokens, own_stream(*backend));
    run(binding);
    const BoundMoe& bound = binding.bound();
    EXPECT_TRUE(launched_with(launch++, route_resolve_params(bound)));
    EXPECT_TRUE(launched_with(launch++, route_sort_params(bound)));
    EXPECT_TRUE(launched_with(launch++, gate_up_params(bound)));
    EXPECT_TRUE(launched_with(launch++, down_params(bound)));
  }
}

/// The tensor-core kernels: bands, panels, shared memory by live tokens.
class RunTilesTest : public RunMoeTest {
 protected:
  RunTilesTest() { naive_kernels_ = false; }
};

TEST_F(RunTilesTest, EveryKernelOfABandGetsItsArgument) {
  const auto backend = make_backend();
  // Few experts: the last band keeps rows in panels, the first one sums in shared memory.
  const DeviceLayer layer(support::caps_of("t300 k2 e4 h520 i72 nvfp4 bf16 silu bias"), *backend);
  const PlanData& plan = *layer.plan.data();
  ASSERT_GE(plan.bands.size(), 2u);
  std::uint64_t launch = 0;
  for (const std::int64_t tokens : {std::int64_t{1}, plan.caps.max_tokens}) {
    const Binding binding = layer.bind(tokens, own_stream(*backend));
    run(binding);
    const BoundMoe& bound = binding.bound();
    const auto band = static_cast<std::size_t>(bound.band - plan.bands.data());
    EXPECT_EQ(band, tokens == 1 ? 0 : plan.bands.size() - 1);
    std::set<CudaKernel> seen;
    for (const CudaLaunch& planned : plan.cuda_bands[band].launches) {
      seen.insert(planned.kernel);
      switch (planned.kernel) {
        case CudaKernel::route_tiles:
          EXPECT_TRUE(launched_with(launch++, route_tiles_params(bound, planned)));
          break;
        case CudaKernel::gate_up_tiles:
          EXPECT_TRUE(launched_with(launch++, gate_up_tiles_params(bound)));
          break;
        case CudaKernel::down_sums:
        case CudaKernel::down_rows:
          EXPECT_TRUE(launched_with(launch++, down_tiles_params(bound, planned)));
          break;
        case CudaKernel::combine_rows:
          EXPECT_TRUE(launched_with(launch++, combine_rows_params(bound, planned)));
          break;
        default:
          ADD_FAILURE() << "a naive kernel";
      }
    }
    EXPECT_EQ(seen.contains(CudaKernel::down_sums), tokens == 1);
    EXPECT_EQ(seen.contains(CudaKernel::combine_rows), tokens != 1);
  }
}

TEST_F(RunTilesTest, SharedMemoryFollowsTheLiveTokens) {
  const auto backend = make_backend();
  const DeviceLayer layer(support::caps_of("t16 k2 e64 h256 i64 mxfp4 bf16 silu"), *backend);
  warm_up(layer.plan, *backend);
  const CudaLaunch& down = layer.plan.data()->cuda_bands[0].launches[2];
  ASSERT_EQ(down.kernel, CudaKernel::down_sums);
  for (const std::int64_t tokens : {1, 16}) {
    const Binding binding = layer.bind(tokens, own_stream(*backend));
    const std::uint64_t begin = control_.call_count();
    run(binding);
    const std::string arguments = control_.calls(begin).at(2).arguments;
    EXPECT_NE(arguments.find(fmt::format(" shared={} ", down.dynamic_bytes + tokens * down.dynamic_bytes_per_token)),
              std::string::npos)
        << arguments;
  }
}

TEST_F(RunTilesTest, WeightsOfAnotherFamilyOrDtypeAndUnalignedRowsAreRefused) {
  const auto backend = make_backend();
  DeviceLayer layer(support::caps_of("t4 k2 e4 h64 i32 nvfp4 bf16 silu"), *backend);
  const DeviceLayer half(support::caps_of("t4 k2 e4 h64 i32 nvfp4 f16 silu"), *backend);
  const auto bind = [&](const MoeTensors& tensors) {
    fourfold::bind(layer.plan, *backend, tensors, layer.workspace.front().span(), own_stream(*backend));
  };
  MoeTensors tensors = layer.tensors;
  tensors.weights = &half.weights;
  expect_error(ErrorCode::usage, {"packed for F16 activations", "prepare_weights"}, [&] { bind(tensors); });
  naive_kernels_ = true;
  const auto naive_backend = make_backend();
  const DeviceLayer naive(support::caps_of("t4 k2 e4 h64 i32 nvfp4 bf16 silu"), *naive_backend);
  tensors.weights = &naive.weights;
  expect_error(ErrorCode::usage, {"naive kernels", "prepare_weights"}, [&] { bind(tensors); });
  tensors = layer.tensors;
  tensors.x.data = static_cast<const std::byte*>(tensors.x.data) + 2;
  expect_error(ErrorCode::usage, {"x is at address", "multiple of 16"}, [&] { bind(tensors); });
}

TEST_F(RunMoeTest, EveryLaunchHasItsGridAndTheBoundStream) {
  const auto backend = make_backend();
  // Sizes for which the four grids differ, and more blocks than one in each.
  const DeviceLayer layer(support::caps_of("t150 k2 e300 h264 i136 mxfp4 bf16 silu"), *backend);
  warm_up(layer.plan, *backend);
  const Stream stream = Stream::create(context());
  for (const std::int64_t tokens : {1, 149}) {
    const Binding binding = layer.bind(tokens, {stream.value()});
    const std::uint64_t begin = control_.call_count();
    run(binding);
    const std::vector<StandInCall> calls = control_.calls(begin);
    ASSERT_EQ(calls.size(), 4u);
    for (const CudaNaiveStep step : {kCudaRouteResolve, kCudaRouteSort, kCudaGateUp, kCudaDown}) {
      const std::string arguments = calls[static_cast<std::size_t>(step)].arguments;
      EXPECT_NE(arguments.find(grid_text(*layer.plan.data(), step, tokens)), std::string::npos) << arguments;
      EXPECT_NE(arguments.find(fmt::format("stream={}", static_cast<void*>(stream.value()))), std::string::npos)
          << arguments;
    }
  }
}

TEST_F(RunMoeTest, AFailedLaunchNamesTheKernelAndNothingFollows) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Binding binding = layer.bind(own_stream(*backend));
  control_.fail("cuLaunchKernel", 2, 719);
  const std::uint64_t begin = control_.call_count();
  expect_error(ErrorCode::internal, {"cuLaunchKernel on cuda:0", layer.plan.kernels()[2], "grid 1 x 12 x 1", "719"},
               [&] { run(binding); });
  EXPECT_EQ(names_since(begin), std::vector<std::string>(3, "cuLaunchKernel"));
  run(binding);  // the binding is good for another try
}

TEST_F(RunMoeTest, FromAnyThreadAndWithoutACurrentContext) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Binding binding = layer.bind(own_stream(*backend));
  const std::uint64_t begin = control_.call_count();
  std::thread([&] { run(binding); }).join();
  EXPECT_EQ(names_since(begin), four_launches_);
}

}  // namespace
}  // namespace fourfold::cuda
