// Four launches on the stream that was bound: which function, which grid, which argument, and what a failure leaves.
#include "cuda/run_moe.h"

#include <gtest/gtest.h>

#include <thread>

#include "cuda/moe_params.h"
#include "cuda_backend_fixture.h"
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
  static std::string grid_text(const PlanData& plan, CudaStep step, std::int64_t tokens) {
    const CudaGrid grid = cuda_grid(plan.caps, step, tokens);
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
    for (const CudaStep step : {kCudaRouteResolve, kCudaRouteSort, kCudaGateUp, kCudaDown}) {
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
