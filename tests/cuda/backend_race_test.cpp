// Many threads at one backend at the same time: everything it promises to be thread-safe, and a freeze in the middle.
#include <gtest/gtest.h>

#include <thread>

#include "cuda_backend_fixture.h"

namespace fourfold::cuda {
namespace {

class BackendRace : public CudaBackendTest {};

TEST_F(BackendRace, WarmUpBindRunWeightsCountersAndFreeze) {
  constexpr int kThreads = 6, kRounds = 8;
  const std::vector<std::string> problems{"t6 k2 e4 h64 i32 nvfp4 bf16 silu", "t3 k1 e2 h64 i32 mxfp4 f16 relu2",
                                          "t2 k2 e3 h32 i32 int4 g32 bf16 situ"};
  for (int round = 0; round < 4; ++round) {
    const auto backend = make_backend(round % 2);
    std::atomic<int> ready{0}, refused{0}, ran{0};
    const auto work = [&](int number) {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (int i = 0; i < kRounds; ++i) {
        const Caps caps = support::caps_of(problems[static_cast<std::size_t>(number + i) % problems.size()]);
        const DeviceLayer layer(caps, *backend);  // its plan, weights and memory come and go each time
        if (number == 0 && i == round + 1) freeze(*backend);
        try {
          if (i % 2 == 0) warm_up(layer.plan, *backend);
          const Binding binding = layer.bind(own_stream(*backend));
          run(binding);
          ++ran;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
          EXPECT_NE(std::string(error.what()).find("frozen"), std::string::npos) << error.what();
          ++refused;
        }
        synchronize(*backend, own_stream(*backend));
        kernel_counters(*backend);
      }
    };
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) threads.emplace_back(work, number);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ran + refused, kThreads * kRounds);
    const KernelCounters counters = kernel_counters(*backend);
    std::uint64_t launches = 0;
    for (const KernelLaunches& entry : counters.launches) launches += entry.launches;
    EXPECT_EQ(launches, static_cast<std::uint64_t>(ran) * 4);
    EXPECT_GE(counters.refusals, static_cast<std::uint64_t>(refused));
  }
}

// Plans, weights, bindings and backends go in every order that the contract allows.
TEST_F(BackendRace, DestructionInOddOrders) {
  for (int order = 0; order < 4; ++order) {
    auto first = make_backend(), second = make_backend();  // both on device 0
    auto layer = std::make_unique<DeviceLayer>(caps_, *first);
    auto other = std::make_unique<DeviceLayer>(caps_, *second);
    ExpertWeights kept = layer->weights;
    auto binding = std::make_unique<Binding>(layer->bind(own_stream(*first)));
    MoeTensors tensors = other->tensors;
    tensors.weights = &kept;  // packed by the one, run by the other
    auto crossed = std::make_unique<Binding>(
        fourfold::bind(other->plan, *second, tensors, other->workspace.front().span(), own_stream(*second)));
    run(*binding);
    if (order % 2 == 0) {
      binding.reset();
      layer.reset();
      first.reset();
      run(*crossed);  // reads weights whose backend is gone
      crossed.reset();
      other.reset();
      second.reset();
    } else {
      run(*crossed);
      crossed.reset();
      other.reset();
      second.reset();
      run(*binding);
      binding.reset();
      layer.reset();
      first.reset();
    }
    if (order >= 2) kept = {};
  }
}

}  // namespace
}  // namespace fourfold::cuda
