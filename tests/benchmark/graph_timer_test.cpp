// Replays on the stand-in driver, where every kernel takes a set time.
#include "benchmark/graph_timer.h"

#include <gtest/gtest.h>

#include <chrono>

#include "cuda/kernel.h"
#include "cuda/stand_in_driver.h"

namespace fourfold::benchmark {
namespace {

class GraphTimerTest : public cuda::StandInTest {
 protected:
  void SetUp() override {
    cuda::StandInTest::SetUp();
    control_.set_launch_us(4);
  }
  /// A graph of `launches` kernels.
  static cuda::GraphExec graph_of(const cuda::ContextRef& device, const cuda::Module& module, cuda::CUstream stream,
                                  int launches) {
    const cuda::ContextGuard current(*device);
    const cuda::CUfunction function = module.function("scale");
    cuda::ScopedCapture capture(device, stream, cuda::CaptureMode::thread_local_mode);
    for (int i = 0; i < launches; ++i)
      device->driver().call(device->driver().launch_kernel, 0, function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr,
                            nullptr);
    return capture.end().instantiate();
  }
};

TEST_F(GraphTimerTest, TimesAreThoseOfTheGraphsPerCall) {
  const cuda::ContextRef device = context();
  const cuda::Module module = cuda::Module::load(device, cuda::stand_in_image("scale"));
  GraphTimer timer(device, {5, 2, 0});
  const cuda::GraphExec lead_in = graph_of(device, module, timer.stream(), 1),
                        four = graph_of(device, module, timer.stream(), 4),
                        six = graph_of(device, module, timer.stream(), 6);
  const TimedGraph graphs[] = {{&four, 2}, {&six, 3}, {&six, 1}};
  std::vector<std::size_t> order;
  const CallTimes times = timer.time(graphs, lead_in, [&](std::size_t graph) { order.push_back(graph); });
  ASSERT_EQ(times.size(), 3u);
  for (const auto& [graph, us] : {std::pair{0, 8.0}, {1, 8.0}, {2, 24.0}}) {
    ASSERT_EQ(times[static_cast<std::size_t>(graph)].size(), 5u);
    for (const double time : times[static_cast<std::size_t>(graph)]) EXPECT_NEAR(time, us, 1e-3);
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1, 2}));
}

TEST_F(GraphTimerTest, RestsBeforeEveryTimingAndLongerForLongGraphs) {
  using Clock = std::chrono::steady_clock;
  const cuda::ContextRef device = context();
  const cuda::Module module = cuda::Module::load(device, cuda::stand_in_image("scale"));
  const auto seconds_of = [&](double launch_us, double pause_ms) {
    control_.set_launch_us(launch_us);
    GraphTimer timer(device, {4, 1, pause_ms});
    const cuda::GraphExec graph = graph_of(device, module, timer.stream(), 1);
    const TimedGraph graphs[] = {{&graph, 1}};
    const auto start = Clock::now();
    timer.time(graphs, graph);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  EXPECT_GE(seconds_of(4, 10), 4 * 0.010);
  EXPECT_GE(seconds_of(15'000, 1), 4 * 0.030) << "a replay of 15 ms rests 30";
  EXPECT_LT(seconds_of(500'000, 0), 1) << "who wants no rest gets none";
}

}  // namespace
}  // namespace fourfold::benchmark
