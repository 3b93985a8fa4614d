// The one place that loads kernels: hits, misses, refusals, and what the driver sees of each.
#include "cuda/module_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "cuda/capture_guard.h"
#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

struct Params {
  int n = 0;
};

class ModuleCacheTest : public StandInTest {
 protected:
  std::atomic<int> asked_{0};  // calls of the image source
  std::string attributes_;
  std::unique_ptr<ModuleCache> owner_ = std::make_unique<ModuleCache>([this](const KernelSpec& spec) {
    ++asked_;
    return stand_in_image(spec.entry(), attributes_);
  });
  ModuleCache& cache_ = *owner_;

  void TearDown() override {
    owner_.reset();
    StandInTest::TearDown();
  }
  /// Calls of the driver from number `begin` on that allocate, load, wait or create.
  void expect_nothing_heavy_since(std::uint64_t begin) const {
    static const std::set<std::string> light = {"cuStreamIsCapturing", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                                                "cuLaunchKernel",      "cuMemsetD8Async",     "cuMemcpyHtoDAsync_v2",
                                                "cuStreamEndCapture",  "cuFuncSetAttribute",  "cuMemcpyDtoDAsync_v2"};
    for (const StandInCall& call : control_.calls(begin)) EXPECT_TRUE(light.contains(call.name)) << call.name;
  }
};

TEST_F(ModuleCacheTest, LoadsOnceAndThenFindsInMemory) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  EXPECT_FALSE(cache_.contains(test_spec(), *device));
  const Kernel first = cache_.resolve(test_spec(), device, {stream.value(), 4});
  const std::uint64_t begin = control_.call_count();
  const Kernel second = cache_.resolve(test_spec(), device, {stream.value(), 4});
  EXPECT_EQ(control_.call_count(), begin);  // a hit asks the driver nothing
  EXPECT_EQ(first.function(), second.function());
  EXPECT_TRUE(cache_.contains(test_spec(), *device));
  EXPECT_EQ(asked_, 1);
  const ModuleCounters counters = cache_.counters();
  EXPECT_EQ(counters.loaded, 1u);
  EXPECT_EQ(counters.from_memory, 1u);
  EXPECT_EQ(counters.refusals, 0u);
}

TEST_F(ModuleCacheTest, InstancesAndDevicesAreToldApart) {
  const ContextRef first = context(0), second = context(1);
  std::set<CUfunction> functions;
  for (const ContextRef& device : {first, second})
    for (int number = 0; number < 3; ++number)
      functions.insert(cache_.resolve(test_spec(number), device, {nullptr, 1}).function());
  EXPECT_EQ(functions.size(), 6u);
  EXPECT_EQ(cache_.counters().loaded, 6u);
  const auto launches = cache_.counters().launches;
  ASSERT_EQ(launches.size(), 6u);
  EXPECT_EQ(launches[1].kernel, "scale<N=0>");
  EXPECT_EQ(launches[1].device, 1);
}

TEST_F(ModuleCacheTest, AColdMissUnderCaptureIsRefusedBeforeTheImageIsAskedFor) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed}) {
    ScopedCapture capture(device, stream.value(), mode);
    const std::uint64_t begin = control_.call_count();
    expect_error(ErrorCode::usage,
                 {"scale<N=0>", "for 17 tokens", "cuda:0", "capture is active", "warm_up(plan, backend)"}, [&] {
                   cache_.resolve(test_spec(), device, {stream.value(), 17});
                 });
    EXPECT_EQ(asked_, 0);
    expect_nothing_heavy_since(begin);
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::active);
    const Graph graph = capture.end();  // still a valid capture
    EXPECT_EQ(graph.node_count(), 0u);
  }
  EXPECT_EQ(cache_.counters().refusals, 3u);
  EXPECT_EQ(cache_.counters().loaded, 0u);
  // The stream is usable, and a second capture succeeds.
  stream.synchronize();
  cache_.warm_up(std::array{test_spec()}, device);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  const std::uint64_t begin = control_.call_count();
  cache_.resolve(test_spec(), device, {stream.value(), 17}).launch({}, stream.value(), Params{});
  const Graph graph = capture.end();
  expect_nothing_heavy_since(begin);
  EXPECT_EQ(graph.node_count(), 1u);
  graph.instantiate().launch(stream.value());
}

TEST_F(ModuleCacheTest, AnInvalidatedCaptureCountsToo) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  EXPECT_THROW(stream.synchronize(), Error);
  expect_error(ErrorCode::usage, {"scale<N=0>", "capture is invalidated"}, [&] {
    cache_.resolve(test_spec(), device, {stream.value(), 1});
  });
  EXPECT_EQ(asked_, 0);
  EXPECT_THROW(capture.end(), Error);
  cache_.resolve(test_spec(), device, {stream.value(), 1}).launch({}, stream.value(), Params{});
}

TEST_F(ModuleCacheTest, TheStreamThatWasGivenDecidesNotTheCurrentOne) {
  const ContextRef device = context();
  const Stream captured = Stream::create(device), free = Stream::create(device);
  ScopedCapture capture(device, captured.value(), CaptureMode::global);
  EXPECT_THROW(cache_.resolve(test_spec(), device, {captured.value(), 1}), Error);
  cache_.resolve(test_spec(), device, {free.value(), 1});  // loads, and the capture stays valid
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(capture.end().node_count(), 0u);
}

TEST_F(ModuleCacheTest, OnDeviceOneWhileDeviceZeroIsCurrent) {
  const ContextRef first = context(0), second = context(1);
  const ContextGuard current(*first);
  const Stream stream = Stream::create(second);
  {
    ScopedCapture capture(second, stream.value(), CaptureMode::global);
    expect_error(ErrorCode::usage, {"cuda:1", "capture is active"}, [&] {
      cache_.resolve(test_spec(), second, {stream.value(), 1});
    });
  }
  cache_.warm_up(std::array{test_spec()}, first);  // the other device's does not help
  ScopedCapture capture(second, stream.value(), CaptureMode::global);
  EXPECT_THROW(cache_.resolve(test_spec(), second, {stream.value(), 1}), Error);
  EXPECT_EQ(capture.end().node_count(), 0u);
  cache_.warm_up(std::array{test_spec()}, second);
  ScopedCapture again(second, stream.value(), CaptureMode::global);
  cache_.resolve(test_spec(), second, {stream.value(), 1}).launch({}, stream.value(), Params{});
  EXPECT_EQ(again.end().node_count(), 1u);
}

TEST_F(ModuleCacheTest, AStreamForkedIntoACaptureIsRefused) {
  const ContextRef device = context();
  const Stream origin = Stream::create(device), forked = Stream::create(device);
  const Event event = Event::create(device, false);
  const ScopedCapture capture(device, origin.value(), CaptureMode::global);
  event.record(origin.value());
  forked.wait(event);
  EXPECT_THROW(cache_.resolve(test_spec(), device, {forked.value(), 1}), Error);
  EXPECT_EQ(asked_, 0);
}

TEST_F(ModuleCacheTest, WarmUpWhileAnotherThreadCaptures) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  cache_.warm_up(std::array{test_spec(0)}, device);
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_mode}) {
    ScopedCapture capture(device, stream.value(), mode);
    const Kernel kernel = cache_.resolve(test_spec(0), device, {stream.value(), 1});
    kernel.launch({}, stream.value(), Params{});
    std::thread([&] {
      const int number = 1 + static_cast<int>(mode);
      cache_.warm_up(std::array{test_spec(number)}, device);
      EXPECT_TRUE(cache_.contains(test_spec(number), *device));
      EXPECT_EQ(control_.thread_mode(), 0);
      EXPECT_EQ(control_.context_depth(), 0);
    }).join();
    kernel.launch({}, stream.value(), Params{});
    EXPECT_EQ(capture.end().node_count(), 2u);
  }
}

TEST_F(ModuleCacheTest, AfterFreezeAMissIsRefusedAndAHitIsNot) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  cache_.warm_up(std::array{test_spec(0)}, device);
  EXPECT_FALSE(cache_.frozen());
  cache_.freeze();
  EXPECT_TRUE(cache_.frozen());
  cache_.resolve(test_spec(0), device, {stream.value(), 2});
  cache_.warm_up(std::array{test_spec(0)}, device);
  const std::uint64_t begin = control_.call_count();
  expect_error(ErrorCode::usage, {"scale<N=1>", "for 2 tokens", "frozen", "warm_up(plan, backend) before freeze()"},
               [&] {
                 cache_.resolve(test_spec(1), device, {stream.value(), 2});
               });
  expect_error(ErrorCode::usage, {"scale<N=1>", "in warm_up", "frozen"},
               [&] { cache_.warm_up(std::array{test_spec(1)}, device); });
  EXPECT_EQ(control_.call_count(), begin);
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(cache_.counters().refusals, 2u);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);  // frozen and captured
  EXPECT_THROW(cache_.resolve(test_spec(1), device, {stream.value(), 2}), Error);
  EXPECT_EQ(capture.end().node_count(), 0u);
}

TEST_F(ModuleCacheTest, FreezeWhileALoadWaitsRefusesTheWaiting) {
  const ContextRef device = context();
  std::atomic<bool> loading{false}, release{false};
  ModuleCache cache([&](const KernelSpec& spec) {
    loading = true;
    while (!release) std::this_thread::yield();
    return stand_in_image(spec.entry());
  });
  std::thread first([&] { cache.warm_up(std::array{test_spec(0)}, device); });
  while (!loading) std::this_thread::yield();
  std::atomic<int> refused{0};
  std::thread second([&] {
    try {
      cache.warm_up(std::array{test_spec(1)}, device);
    } catch (const Error&) {
      ++refused;
    }
  });
  cache.freeze();
  release = true;
  first.join();
  second.join();
  EXPECT_EQ(refused, 1);  // it found the cache frozen before or after its wait
  EXPECT_TRUE(cache.contains(test_spec(0), *device));
  EXPECT_FALSE(cache.contains(test_spec(1), *device));
}

TEST_F(ModuleCacheTest, ThreadsThatMissTogetherLoadOnce) {
  const ContextRef device = context();
  std::vector<std::thread> threads;
  std::atomic<int> resolved{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int number = 0; number < 4; ++number)
        resolved += static_cast<bool>(cache_.resolve(test_spec((number + i) % 4), device, {nullptr, 1}));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(resolved, 32);
  EXPECT_EQ(asked_, 4);
  EXPECT_EQ(cache_.counters().loaded, 4u);
  EXPECT_EQ(cache_.counters().from_memory, 28u);
}

TEST_F(ModuleCacheTest, SharedMemoryAttributesOnlyRise) {
  const ContextRef device = context();
  const auto with_shared = [](std::int64_t bytes) {
    KernelSpec spec = test_spec();
    spec.shared_bytes = bytes;
    return spec;
  };
  const auto sets = [&] { return control_.count("cuFuncSetAttribute"); };
  attributes_ = "static_shared=1024";
  EXPECT_EQ(cache_.resolve(with_shared(40 * 1024), device, {}).dynamic_shared_bytes(), 39u * 1024);
  EXPECT_EQ(sets(), 0);  // 48 KiB need no asking
  cache_.resolve(with_shared(100 * 1024), device, {});
  cache_.resolve(with_shared(100 * 1024), device, {});
  EXPECT_EQ(sets(), 1);
  EXPECT_EQ(cache_.resolve(with_shared(60 * 1024), device, {}).dynamic_shared_bytes(), 59u * 1024);
  EXPECT_EQ(sets(), 1);
  cache_.resolve(with_shared(200 * 1024), device, {});
  EXPECT_EQ(sets(), 2);
  EXPECT_EQ(control_.count("cuModuleLoadData"), 1);
  expect_error(ErrorCode::internal, {"scale<N=0>", "232448 bytes of dynamic shared memory", "cuda:0"},
               [&] { cache_.resolve(with_shared(228 * 1024), device, {}); });
}

TEST_F(ModuleCacheTest, CodeThatDoesNotKeepThePlansWordIsRefused) {
  const ContextRef device = context();
  attributes_ = "static_shared=1024 max_threads=96";
  KernelSpec spec = test_spec();
  spec.block_threads = 96;
  spec.shared_bytes = 1023;
  expect_error(ErrorCode::internal, {"scale<N=0>", "1023 bytes", "1024 of static"},
               [&] { cache_.resolve(spec, device, {}); });
  spec.shared_bytes = 1024;
  cache_.resolve(spec, device, {});
  for (const int threads : {0, 97}) {
    spec.block_threads = threads;
    expect_error(ErrorCode::internal, {std::to_string(threads) + " threads", "1 .. 96"},
                 [&] { cache_.resolve(spec, device, {}); });
  }
}

TEST_F(ModuleCacheTest, AnImageWithoutTheEntryNamesKernelAndEntry) {
  ModuleCache cache([](const KernelSpec&) { return stand_in_image("another"); });
  expect_error(ErrorCode::internal, {"kernel scale<N=0> cannot be loaded", "no function scale"},
               [&] { cache.warm_up(std::array{test_spec()}, context()); });
  EXPECT_EQ(control_.live("module"), 0);
}

TEST_F(ModuleCacheTest, WhatTheImageSourceThrowsPassesAndTheNextTryIsFresh) {
  const ContextRef device = context();
  int calls = 0;
  ModuleCache cache([&](const KernelSpec& spec) {
    if (++calls == 1) throw Error(ErrorCode::unavailable, "no compiler here");
    return stand_in_image(spec.entry());
  });
  expect_error(ErrorCode::unavailable, {"no compiler here"}, [&] { cache.resolve(test_spec(), device, {}); });
  EXPECT_EQ(control_.thread_mode(), 0);
  EXPECT_TRUE(cache.resolve(test_spec(), device, {}));
}

TEST_F(ModuleCacheTest, EveryDriverCallOfALoadFailingOnceIsAClearErrorAndNoLeak) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  KernelSpec spec = test_spec();
  spec.shared_bytes = 64 * 1024;
  int broken = 0;
  for (const char* name :
       {"cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode", "cuCtxPushCurrent_v2", "cuModuleLoadData",
        "cuModuleGetFunction", "cuFuncLoad", "cuFuncGetAttribute", "cuFuncSetAttribute"}) {
    SCOPED_TRACE(name);
    ModuleCache cache([](const KernelSpec& asked) { return stand_in_image(asked.entry()); });
    control_.fail(name, 0, 999);
    expect_error(ErrorCode::internal, {name, "999"}, [&] { cache.resolve(spec, device, {stream.value(), 1}); });
    EXPECT_EQ(control_.thread_mode(), 0);
    EXPECT_EQ(control_.context_depth(), 0);
    const bool is_loaded = std::string(name) == "cuFuncSetAttribute";  // loaded by then; the next try only raises
    EXPECT_EQ(control_.live("module"), is_loaded ? 1 : 0);
    EXPECT_TRUE(cache.resolve(spec, device, {stream.value(), 1}));
    ++broken;
  }
  EXPECT_EQ(broken, 8);
  EXPECT_EQ(control_.live("module"), 0);
}

TEST_F(ModuleCacheTest, TwentyCapturesAndReplaysLoadNothing) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  cache_.warm_up(std::array{test_spec(0), test_spec(1)}, device);
  cache_.freeze();
  for (int round = 0; round < 20; ++round) {
    ScopedCapture capture(device, stream.value(), CaptureMode::global);
    const std::uint64_t begin = control_.call_count();
    for (int number = 0; number < 2; ++number)
      cache_.resolve(test_spec(number), device, {stream.value(), round}).launch({}, stream.value(), Params{});
    const Graph graph = capture.end();
    expect_nothing_heavy_since(begin);
    graph.instantiate().launch(stream.value());
  }
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(cache_.counters().launches.at(0).launches, 20u);
  EXPECT_EQ(control_.live("graph") + control_.live("graph_exec"), 0);
}

}  // namespace
}  // namespace fourfold::cuda
