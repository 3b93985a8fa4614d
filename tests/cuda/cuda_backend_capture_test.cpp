// Points 3 and 4 of the contract on a GPU: what plan, prepare_weights, warm_up, bind and run ask of the driver while
// streams are captured, by the driver's own log.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "cuda/capture_guard.h"
#include "cuda_backend_fixture.h"

namespace fourfold::cuda {
namespace {

constexpr CaptureMode kModes[] = {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed};

class CudaCaptureTest : public CudaBackendTest {
 protected:
  /// Expects a bind under capture of `stream` to be refused, with a text of `parts`, before anything happens.
  void expect_refusal(const DeviceLayer& layer, CUstream stream, std::vector<std::string> parts) {
    const int compiles = compiler_->compiles;
    const std::vector<std::string> cache = cache_state();
    const std::uint64_t begin = control_.call_count();
    parts.insert(parts.end(), {"route_resolve", "for 5 tokens", "call warm_up(plan, backend) before"});
    expect_error(ErrorCode::usage, parts, [&] { layer.bind(5, {stream}); });
    EXPECT_EQ(names_since(begin), std::vector<std::string>{"cuStreamIsCapturing"});
    EXPECT_EQ(compiler_->compiles, compiles);
    EXPECT_EQ(cache_state(), cache);
  }
  /// Runs `work` on a thread of its own while this thread captures, and expects the capture to end well.
  void expect_harmless(const std::shared_ptr<Backend>& backend, CaptureMode mode, const std::function<void()>& work) {
    const DeviceLayer layer(caps_, *backend);
    warm_up(layer.plan, *backend);
    const Stream stream = Stream::create(context());
    ScopedCapture capture(context(), stream.value(), mode);
    run(layer.bind({stream.value()}));
    std::thread([&] {
      EXPECT_NO_THROW(work());
      EXPECT_EQ(control_.thread_mode(), 0);
      EXPECT_EQ(control_.context_depth(), 0);
    }).join();
    run(layer.bind({stream.value()}));
    EXPECT_EQ(capture.end().node_count(), 8u);
  }
};

TEST_F(CudaCaptureTest, RunMakesFourLaunchesAndNoOtherCall) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  warm_up(layer.plan, *backend);
  const Stream stream = Stream::create(context());
  for (const CaptureMode mode : kModes) {
    const Binding binding = layer.bind({stream.value()});
    ScopedCapture capture(context(), stream.value(), mode);
    const std::uint64_t begin = control_.call_count();
    run(binding);
    EXPECT_EQ(names_since(begin), four_launches_);
    EXPECT_EQ(capture.end().node_count(), 4u);
  }
}

TEST_F(CudaCaptureTest, AWarmBindMakesNoCall) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  warm_up(layer.plan, *backend);
  const Stream stream = Stream::create(context());
  for (const CaptureMode mode : kModes) {
    ScopedCapture capture(context(), stream.value(), mode);
    const std::uint64_t begin = control_.call_count();
    const Binding binding = layer.bind({stream.value()});
    EXPECT_EQ(control_.call_count(), begin);
    run(binding);
    EXPECT_EQ(capture.end().node_count(), 4u);
  }
}

TEST_F(CudaCaptureTest, NothingIsAllocatedLoadedOrWaitedForBetweenBeginAndEnd) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  warm_up(layer.plan, *backend);
  freeze(*backend);
  const Stream stream = Stream::create(context());
  for (int round = 0; round < 20; ++round) {  // destroyed, run outside of a capture, captured again
    const ContextRef device = context();
    const std::uint64_t begin = control_.call_count();
    ScopedCapture capture(device, stream.value(), CaptureMode::global);
    for (std::int64_t tokens = 1; tokens <= 6; ++tokens) run(layer.bind(tokens, {stream.value()}));
    const Graph graph = capture.end();
    std::vector<std::string> expected(24, "cuLaunchKernel");
    expected.insert(expected.begin(), "cuStreamBeginCapture_v2");
    expected.push_back("cuStreamEndCapture");
    EXPECT_EQ(names_since(begin), expected);
    graph.instantiate().launch(stream.value());
    run(layer.bind({stream.value()}));
  }
  EXPECT_EQ(compiler_->compiles, 4);
  EXPECT_EQ(kernel_counters(*backend).loaded, 4u);
}

TEST_F(CudaCaptureTest, AColdBindIsRefusedBeforeDiskCompileAndLoad) {
  warm_the_disk(caps_);
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Stream stream = Stream::create(context());
  for (const CaptureMode mode : kModes) {
    ScopedCapture capture(context(), stream.value(), mode);
    expect_refusal(layer, stream.value(), {"capture is active", "before the capture begins"});
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::active);
    EXPECT_EQ(capture.end().node_count(), 0u);  // not invalidated by us
  }
  EXPECT_EQ(kernel_counters(*backend).refusals, 3u);
}

TEST_F(CudaCaptureTest, AColdBindWithAnEmptyDiskMakesNoFolder) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Stream stream = Stream::create(context());
  const ScopedCapture capture(context(), stream.value(), CaptureMode::global);
  expect_refusal(layer, stream.value(), {"capture is active"});
  EXPECT_FALSE(fs::exists(cache_folder() / "kernels"));
}

TEST_F(CudaCaptureTest, AfterARefusalTheStreamIsUsableAndASecondCaptureSucceeds) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Stream stream = Stream::create(context());
  {
    const ScopedCapture capture(context(), stream.value(), CaptureMode::global);
    EXPECT_THROW(layer.bind({stream.value()}), Error);
  }
  synchronize(*backend, {stream.value()});
  warm_up(layer.plan, *backend);
  ScopedCapture capture(context(), stream.value(), CaptureMode::global);
  run(layer.bind({stream.value()}));
  const Graph graph = capture.end();
  EXPECT_EQ(graph.node_count(), 4u);
  graph.instantiate().launch(stream.value());
}

TEST_F(CudaCaptureTest, AnInvalidatedCaptureCountsToo) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Stream stream = Stream::create(context());
  ScopedCapture capture(context(), stream.value(), CaptureMode::global);
  EXPECT_THROW(stream.synchronize(), Error);  // forbidden: invalidates
  expect_refusal(layer, stream.value(), {"capture is invalidated"});
  EXPECT_THROW(capture.end(), Error);
  run(layer.bind({stream.value()}));
}

TEST_F(CudaCaptureTest, TheStreamThatWasPassedDecides) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Stream captured = Stream::create(context()), other = Stream::create(context());
  ScopedCapture capture(context(), captured.value(), CaptureMode::global);
  expect_refusal(layer, captured.value(), {"capture is active"});
  run(layer.bind({other.value()}));  // loads, and leaves the capture as it is
  EXPECT_EQ(kernel_counters(*backend).loaded, 4u);
  EXPECT_EQ(capture.end().node_count(), 0u);
}

TEST_F(CudaCaptureTest, ACaptureOnDeviceOneWhileDeviceZeroIsCurrent) {
  const auto backend = make_backend(1);
  const DeviceLayer layer(caps_, *backend);
  const ContextRef first = context(0), second = context(1);
  const ContextGuard current(*first);
  const Stream stream = Stream::create(second);
  {
    const ScopedCapture capture(second, stream.value(), CaptureMode::global);
    expect_refusal(layer, stream.value(), {"cuda:1", "capture is active"});
  }
  warm_up(layer.plan, *backend);
  ScopedCapture capture(second, stream.value(), CaptureMode::global);
  const std::uint64_t begin = control_.call_count();
  run(layer.bind({stream.value()}));
  EXPECT_EQ(names_since(begin), four_launches_);
  EXPECT_EQ(capture.end().node_count(), 4u);
}

TEST_F(CudaCaptureTest, AFrozenMissWithAWarmDiskReadsNothing) {
  warm_the_disk(caps_);
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  freeze(*backend);
  const std::vector<std::string> cache = cache_state();
  ASSERT_GE(cache.size(), 4u);
  const std::uint64_t begin = control_.call_count();
  expect_error(ErrorCode::usage, {"route_resolve", "for 6 tokens", "frozen", "call warm_up(plan, backend)"},
               [&] { layer.bind(own_stream(*backend)); });
  expect_error(ErrorCode::usage, {"route_resolve", "in warm_up", "frozen"}, [&] { warm_up(layer.plan, *backend); });
  EXPECT_EQ(control_.call_count(), begin);
  EXPECT_EQ(cache_state(), cache);
  EXPECT_EQ(compiler_->compiles, 0);
  EXPECT_EQ(kernel_counters(*backend).refusals, 2u);
}

TEST_F(CudaCaptureTest, WhatIsWarmIsServedWhenFrozen) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  warm_up(layer.plan, *backend);
  freeze(*backend);
  warm_up(layer.plan, *backend);
  run(layer.bind(own_stream(*backend)));
  EXPECT_EQ(kernel_counters(*backend).refusals, 0u);
}

TEST_F(CudaCaptureTest, WarmUpWhileAnotherThreadCaptures) {
  for (const CaptureMode mode : kModes) {
    const auto backend = make_backend();
    expect_harmless(backend, mode, [&] {
      const Caps other = support::caps_of("t6 k2 e4 h64 i32 mxfp4 bf16 silu");
      warm_up(fourfold::plan(other, backend->device()), *backend);
    });
    EXPECT_EQ(kernel_counters(*backend).loaded, 6u);
  }
}

TEST_F(CudaCaptureTest, WarmUpOnTheThreadThatCaptures) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  const Stream stream = Stream::create(context());
  ScopedCapture capture(context(), stream.value(), CaptureMode::global);
  warm_up(layer.plan, *backend);
  run(layer.bind({stream.value()}));
  EXPECT_EQ(capture.end().node_count(), 4u);
}

TEST_F(CudaCaptureTest, PreparingAndReleasingWeightsWhileAnotherThreadCaptures) {
  for (const CaptureMode mode : kModes) {
    const auto backend = make_backend();
    expect_harmless(backend, mode, [&] { DeviceLayer(caps_, *backend); });
  }
}

TEST_F(CudaCaptureTest, AllocatingAndReleasingAWorkspaceWhileAnotherThreadCaptures) {
  const auto backend = make_backend();
  expect_harmless(backend, CaptureMode::global, [&] {
    const std::uint64_t before = control_.memory_used(0);
    {
      const Workspace workspace = Workspace::allocate(4096, *backend);
      EXPECT_EQ(control_.memory_used(0), before + 4096);
    }
    EXPECT_EQ(control_.memory_used(0), before);
  });
}

TEST_F(CudaCaptureTest, CopyingAndWaitingWhileAnotherThreadCaptures) {
  const auto backend = make_backend();
  const Workspace memory = Workspace::allocate(16, *backend);
  expect_harmless(backend, CaptureMode::global, [&] {
    std::array<std::byte, 16> host{};
    copy_to_device(*backend, memory.span(), host);
    fill(*backend, memory.span(), 3);
    copy_to_host(*backend, host, memory.span());
    synchronize(*backend, own_stream(*backend));
    EXPECT_EQ(host[15], std::byte{3});
  });
}

TEST_F(CudaCaptureTest, ABackendIsMadeAndDestroyedWhileAnotherThreadCaptures) {
  expect_harmless(make_backend(), CaptureMode::global, [&] { make_backend(1); });
}

TEST_F(CudaCaptureTest, BlockingCallsOnACapturedStreamAreRefusedAndLeaveTheCapture) {
  const auto backend = make_backend();
  const Workspace memory = Workspace::allocate(16, *backend);
  std::array<std::byte, 16> host{};
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"copy_to_device", [&] { copy_to_device(*backend, memory.span(), host); }},
      {"copy_to_host", [&] { copy_to_host(*backend, host, memory.span()); }},
      {"fill", [&] { fill(*backend, memory.span(), 1); }},
      {"synchronize", [&] { synchronize(*backend, own_stream(*backend)); }}};
  for (const auto& [name, call] : calls) {
    ScopedCapture capture(context(), handle(own_stream(*backend)), CaptureMode::global);
    expect_error(ErrorCode::usage, {name + ":", "captured (active)"}, call);
    EXPECT_EQ(capture.end().node_count(), 0u);
  }
  for (const auto& [name, call] : calls) EXPECT_NO_THROW(call()) << name;
}

TEST_F(CudaCaptureTest, AReplayRepeatsTheFourKernelsInOrder) {
  const auto backend = make_backend();
  const DeviceLayer layer(caps_, *backend);
  warm_up(layer.plan, *backend);
  const Stream stream = Stream::create(context());
  ScopedCapture capture(context(), stream.value(), CaptureMode::global);
  run(layer.bind({stream.value()}));
  const GraphExec exec = capture.end().instantiate();
  const std::uint64_t begin = control_.call_count();
  exec.launch(stream.value());
  std::vector<std::string> replayed;
  for (const StandInCall& call : control_.calls(begin))
    if (call.thread == 0)
      replayed.push_back(std::string(call.arguments).substr(0, std::string(call.arguments).find(' ')));
  EXPECT_EQ(replayed, (std::vector<std::string>{"route_resolve", "route_sort", "gate_up_naive", "down_naive"}));
}

}  // namespace
}  // namespace fourfold::cuda
