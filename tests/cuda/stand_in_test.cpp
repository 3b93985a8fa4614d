// The stand-in driver itself: its answers during a capture are those that a real driver of CUDA 13 was seen to give.
#include <gtest/gtest.h>

#include <thread>

#include "cuda/capture_guard.h"
#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

/// Who makes a call while a stream is being captured, and how that capture was begun.
struct Scene {
  const char* name;
  CaptureMode capture;
  bool other_thread;
  bool relaxed_caller;
};
constexpr Scene kScenes[] = {
    {"global, same thread", CaptureMode::global, false, false},
    {"thread-local, same thread", CaptureMode::thread_local_mode, false, false},
    {"relaxed, same thread", CaptureMode::relaxed, false, false},
    {"global, other thread", CaptureMode::global, true, false},
    {"thread-local, other thread", CaptureMode::thread_local_mode, true, false},
    {"global, other relaxed thread", CaptureMode::global, true, true},
    {"global, same thread relaxed", CaptureMode::global, false, true},
};

/// What a kind of call gives: the results in the order of kScenes.
enum class Kind { legal, unsafe, never };
constexpr CUresult expected(Kind kind, std::size_t scene) {
  constexpr bool kForbidden[] = {true, true, false, true, false, false, false};
  if (kind == Kind::never) return kStreamCaptureUnsupported;
  return kind == Kind::unsafe && kForbidden[scene] ? kStreamCaptureUnsupported : kSuccess;
}

class StandInCaptureTest : public StandInTest {
 protected:
  /// Makes `call` in every scene; a forbidden one invalidates the capture, a legal one leaves it.
  void expect_kind(const char* name, Kind kind, const std::function<CUresult(CUstream captured)>& call) {
    const ContextRef device = context();
    for (std::size_t i = 0; i < std::size(kScenes); ++i) {
      SCOPED_TRACE(std::string(name) + ": " + kScenes[i].name);
      const Stream stream = Stream::create(device);
      ScopedCapture capture(device, stream.value(), kScenes[i].capture);
      CUresult result = kSuccess;
      const auto make = [&] {
        const ContextGuard current(*device);
        int mode = kScenes[i].relaxed_caller ? 2 : 0;
        driver_->thread_exchange_capture_mode.function(&mode);
        result = call(stream.value());
        driver_->thread_exchange_capture_mode.function(&mode);
      };
      if (kScenes[i].other_thread)
        std::thread(make).join();
      else
        make();
      EXPECT_EQ(result, expected(kind, i));
      EXPECT_EQ(capture_state(*driver_, 0, stream.value()),
                expected(kind, i) == kSuccess ? CaptureState::active : CaptureState::invalidated);
    }
  }
};

TEST_F(StandInCaptureTest, MemoryCallsAreUnsafe) {
  expect_kind("cuMemAlloc_v2", Kind::unsafe, [&](CUstream) {
    CUdeviceptr address = 0;
    const CUresult result = driver_->mem_alloc.function(&address, 16);
    const ScopedRelaxedCapture relaxed(*driver_);
    if (result == kSuccess) driver_->mem_free.function(address);
    return result;
  });
  expect_kind("cuMemHostAlloc", Kind::unsafe, [&](CUstream) {
    void* address = nullptr;
    const CUresult result = driver_->mem_host_alloc.function(&address, 16, 0);
    const ScopedRelaxedCapture relaxed(*driver_);
    if (result == kSuccess) driver_->mem_free_host.function(address);
    return result;
  });
}

TEST_F(StandInCaptureTest, WaitingForAnotherStreamIsUnsafeAndForTheCapturedOneImpossible) {
  const ContextRef device = context();
  const Stream other = Stream::create(device);
  const Event event = Event::create(device, false);
  event.record(other.value());
  expect_kind("other", Kind::unsafe, [&](CUstream) { return driver_->stream_synchronize.function(other.value()); });
  expect_kind("event", Kind::unsafe, [&](CUstream) { return driver_->event_synchronize.function(event.value()); });
  expect_kind("self", Kind::never, [&](CUstream self) { return driver_->stream_synchronize.function(self); });
}

TEST_F(StandInCaptureTest, LoadingIsUnsafeOrLegalByTheDriversKind) {
  const std::vector<std::byte> image = stand_in_image("scale");
  const auto load = [&](CUstream) {
    CUmodule module = nullptr;
    const CUresult result = driver_->module_load_data.function(&module, image.data());
    const ScopedRelaxedCapture relaxed(*driver_);
    if (result == kSuccess) driver_->module_unload.function(module);
    return result;
  };
  expect_kind("eager", Kind::unsafe, load);
  control_.set_strict_module_load(0);
  expect_kind("lazy", Kind::legal, load);
}

TEST_F(StandInCaptureTest, GraphsAreInstantiatedOutsideAndLaunchedBeside) {
  const ContextRef device = context();
  const Stream other = Stream::create(device);
  ScopedCapture capture(device, other.value(), CaptureMode::relaxed);
  const Graph graph = capture.end();
  const GraphExec exec = graph.instantiate();
  expect_kind("instantiate", Kind::unsafe, [&](CUstream) {
    CUgraphExec made = nullptr;
    const CUresult result = driver_->graph_instantiate.function(&made, graph.value(), 0);
    if (result == kSuccess) driver_->graph_exec_destroy.function(made);
    return result;
  });
  expect_kind("beside", Kind::legal,
              [&](CUstream) { return driver_->graph_launch.function(exec.value(), other.value()); });
  expect_kind("into", Kind::never, [&](CUstream self) { return driver_->graph_launch.function(exec.value(), self); });
}

TEST_F(StandInCaptureTest, LaunchesAttributesAndCreationsAreLegal) {
  const ContextRef device = context();
  const Module module = Module::load(device, stand_in_image("scale"));
  const CUfunction function = module.function("scale");
  const Stream other = Stream::create(device);
  const auto launch = [&](CUstream stream) {
    return driver_->launch_kernel.function(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  };
  expect_kind("launch", Kind::legal, launch);
  expect_kind("launch beside", Kind::legal, [&](CUstream) { return launch(other.value()); });
  expect_kind("attribute", Kind::legal, [&](CUstream) {
    return driver_->func_set_attribute.function(function, kFunctionMaxDynamicSharedBytes, 9);
  });
  expect_kind("create", Kind::legal, [&](CUstream) {
    CUevent event = nullptr;
    const CUresult result = driver_->event_create.function(&event, 0);
    driver_->event_destroy.function(event);
    return result;
  });
}

TEST_F(StandInCaptureTest, EndsByTheRightThreadOrNotAtAll) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  const auto end = [&] {
    CUgraph graph = nullptr;
    const CUresult result = driver_->stream_end_capture.function(stream.value(), &graph);
    if (graph != nullptr) driver_->graph_destroy.function(graph);
    return result;
  };
  EXPECT_EQ(end(), kIllegalState);
  for (int mode = 0; mode < 3; ++mode) {
    ASSERT_EQ(driver_->stream_begin_capture.function(stream.value(), mode), kSuccess);
    EXPECT_EQ(driver_->stream_begin_capture.function(stream.value(), mode), kIllegalState);
    CUresult result = kSuccess;
    std::thread([&] { result = end(); }).join();
    EXPECT_EQ(result, mode == 2 ? kSuccess : kStreamCaptureWrongThread);
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::none);
    EXPECT_EQ(end(), kIllegalState);
  }
  EXPECT_EQ(driver_->stream_begin_capture.function(nullptr, 0), kStreamCaptureUnsupported);
}

TEST_F(StandInCaptureTest, EventsForkJoinAndRefuse) {
  const ContextRef device = context();
  const Stream s = Stream::create(device), t = Stream::create(device);
  const Event e = Event::create(device, false), join = Event::create(device, false);
  const auto begin = [&](const Stream& stream) { driver_->stream_begin_capture.function(stream.value(), 0); };
  const auto end = [&](const Stream& stream) {
    CUgraph graph = nullptr;
    const CUresult result = driver_->stream_end_capture.function(stream.value(), &graph);
    if (graph != nullptr) driver_->graph_destroy.function(graph);
    return result;
  };
  const auto wait = [&](const Stream& stream, const Event& event) {
    return driver_->stream_wait_event.function(stream.value(), event.value(), 0);
  };
  begin(s);  // a captured event cannot be waited for on the host
  e.record(s.value());
  EXPECT_EQ(driver_->event_synchronize.function(e.value()), kCapturedEvent);
  EXPECT_EQ(end(s), kStreamCaptureInvalidated);
  begin(s);  // ended on the forked stream
  e.record(s.value());
  EXPECT_EQ(wait(t, e), kSuccess);
  EXPECT_EQ(end(t), kStreamCaptureUnmatched);
  EXPECT_EQ(end(s), kStreamCaptureInvalidated);
  begin(s);  // not joined
  e.record(s.value());
  EXPECT_EQ(wait(t, e), kSuccess);
  EXPECT_EQ(end(s), kStreamCaptureUnjoined);
  begin(s);  // joined
  e.record(s.value());
  EXPECT_EQ(wait(t, e), kSuccess);
  join.record(t.value());
  EXPECT_EQ(wait(s, join), kSuccess);
  EXPECT_EQ(end(s), kSuccess);
  EXPECT_EQ(capture_state(*driver_, 0, t.value()), CaptureState::none);
  begin(s);  // two captures
  begin(t);
  e.record(s.value());
  EXPECT_EQ(wait(t, e), kStreamCaptureMerge);
  EXPECT_EQ(end(s), kStreamCaptureInvalidated);
  EXPECT_EQ(end(t), kStreamCaptureInvalidated);
  join.record(t.value());
  begin(s);  // an event from outside
  EXPECT_EQ(wait(s, join), kStreamCaptureIsolation);
  EXPECT_EQ(end(s), kStreamCaptureInvalidated);
}

TEST_F(StandInCaptureTest, AnInvalidatedCaptureTakesNothingUntilItIsEnded) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  const DeviceMemory memory = DeviceMemory::allocate(device, 4);
  const Event event = Event::create(device, false);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  driver_->stream_synchronize.function(stream.value());
  EXPECT_EQ(driver_->memset_bytes.function(memory.value(), 0, 4, stream.value()), kStreamCaptureInvalidated);
  EXPECT_EQ(driver_->event_record.function(event.value(), stream.value()), kStreamCaptureInvalidated);
  EXPECT_EQ(driver_->stream_begin_capture.function(stream.value(), 0), kIllegalState);
  EXPECT_THROW(capture.end(), Error);
  EXPECT_EQ(driver_->memset_bytes.function(memory.value(), 0, 4, stream.value()), kSuccess);
}

TEST_F(StandInCaptureTest, NothingIsMadeWithoutAContext) {
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
  CUcontext popped = nullptr;
  EXPECT_EQ(driver_->stream_create.function(&stream, 1), kInvalidContext);
  EXPECT_EQ(driver_->mem_alloc.function(&address, 16), kInvalidContext);
  EXPECT_EQ(driver_->ctx_pop_current.function(&popped), kInvalidContext);
}

TEST_F(StandInCaptureTest, TheLogHasThreadArgumentsAndResult) {
  const std::uint64_t begin = control_.call_count();
  int count = 0;
  driver_->device_get_count.function(&count);
  std::thread([&] {
    CUdevice device = 0;
    driver_->device_get.function(&device, 9);
  }).join();
  const auto calls = control_.calls(begin);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_STREQ(calls[0].name, "cuDeviceGetCount");
  EXPECT_EQ(calls[0].result, kSuccess);
  EXPECT_STREQ(calls[1].arguments, "ordinal=9");
  EXPECT_EQ(calls[1].result, kInvalidDevice);
  EXPECT_NE(calls[0].thread, calls[1].thread);
  EXPECT_EQ(control_.live("no such kind"), -1);
}

}  // namespace
}  // namespace fourfold::cuda
