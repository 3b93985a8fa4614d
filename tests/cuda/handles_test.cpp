// Owners of driver objects: what they create they destroy, once, in the right context, also when calls fail.
#include "cuda/handles.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "cuda/capture_guard.h"
#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

using HandlesTest = StandInTest;

template <class Owner>
constexpr bool move_only = std::is_nothrow_move_constructible_v<Owner>&& std::is_nothrow_move_assignable_v<Owner> &&
                           !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>;
static_assert(move_only<Stream> && move_only<Event> && move_only<Module> && move_only<DeviceMemory>);
static_assert(move_only<HostMemory> && move_only<Graph> && move_only<GraphExec>);

TEST_F(HandlesTest, ContextsAreRetainedAndReleased) {
  {
    const ContextRef first = context(), second = context();
    EXPECT_EQ(control_.live("context"), 2);
    EXPECT_EQ(first->handle(), second->handle());  // the primary one, shared
  }
  EXPECT_EQ(control_.live("context"), 0);
}

TEST_F(HandlesTest, ADeviceThatIsNotThereIsUnavailable) {
  expect_error(ErrorCode::unavailable, {"cuDeviceGet on cuda:5", "CUDA_ERROR_INVALID_DEVICE"}, [&] { context(5); });
}

TEST_F(HandlesTest, GuardsNestAndRestore) {
  const ContextRef first = context(0), second = context(1);
  const auto current = [&] {
    CUcontext handle = nullptr;
    driver_->call(driver_->ctx_get_current, -1, &handle);
    return handle;
  };
  EXPECT_EQ(current(), nullptr);
  {
    const ContextGuard outer(*first);
    EXPECT_EQ(current(), first->handle());
    {
      const ContextGuard inner(*second);
      EXPECT_EQ(current(), second->handle());
    }
    EXPECT_EQ(current(), first->handle());
  }
  EXPECT_EQ(current(), nullptr);
}

TEST_F(HandlesTest, MovesLeaveOneOwner) {
  const ContextRef device = context();
  DeviceMemory memory = DeviceMemory::allocate(device, 1000);
  std::byte* const data = memory.data();
  DeviceMemory moved = std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.bytes(), 1000u);
  EXPECT_FALSE(memory);  // NOLINT: a moved-from owner is empty
  EXPECT_EQ(memory.bytes(), 0u);
  moved = DeviceMemory::allocate(device, 10);
  EXPECT_EQ(control_.live("memory"), 1);
  EXPECT_EQ(control_.memory_used(0), 10u);
  DeviceMemory& same = moved;
  moved = std::move(same);
  EXPECT_TRUE(moved);
  EXPECT_EQ(control_.count("cuMemFree_v2"), 1);
}

TEST_F(HandlesTest, HandlesKeepContextAndDriverAlive) {
  Stream stream = Stream::create(context());
  driver_.reset();
  EXPECT_EQ(control_.live("context"), 1);
  stream.synchronize();
  stream = Stream();
  EXPECT_EQ(control_.live("context"), 0);
}

TEST_F(HandlesTest, MemoryIsOfItsOwnDevice) {
  const ContextRef first = context(0), second = context(1);
  const ContextGuard current(*first);
  const DeviceMemory memory = DeviceMemory::allocate(second, 4096);
  EXPECT_EQ(control_.memory_used(0), 0u);
  EXPECT_EQ(control_.memory_used(1), 4096u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
}

TEST_F(HandlesTest, NoBytesMakeNoCall) {
  const ContextRef device = context();
  const std::uint64_t before = control_.call_count();
  EXPECT_FALSE(DeviceMemory::allocate(device, 0));
  EXPECT_TRUE(HostMemory::allocate(device, 0).span().empty());
  copy_to_device(*device, nullptr, nullptr, {});
  copy_to_host(*device, nullptr, {}, nullptr);
  copy_on_device(*device, nullptr, nullptr, {});
  fill(*device, nullptr, {}, 0);
  EXPECT_EQ(control_.call_count(), before);
}

TEST_F(HandlesTest, OutOfMemorySaysAskedAndFree) {
  const ContextRef device = context();
  control_.set_memory_limit(0, 1000);
  const DeviceMemory some = DeviceMemory::allocate(device, 600);
  expect_error(ErrorCode::unavailable, {"cuda:0", "401 bytes asked", "400 of", "CUDA_ERROR_OUT_OF_MEMORY"},
               [&] { DeviceMemory::allocate(device, 401); });
  EXPECT_EQ(DeviceMemory::allocate(device, 400).bytes(), 400u);
  control_.fail("cuMemHostAlloc", 0, kOutOfMemory);
  expect_error(ErrorCode::unavailable, {"cuMemHostAlloc", "77 bytes", "CUDA_ERROR_OUT_OF_MEMORY"},
               [&] { HostMemory::allocate(device, 77); });
}

TEST_F(HandlesTest, CopiesAndFillsCarryTheirBytes) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  const HostMemory host = HostMemory::allocate(device, 8);
  const DeviceMemory a = DeviceMemory::allocate(device, 8), b = DeviceMemory::allocate(device, 8);
  for (std::size_t i = 0; i < 8; ++i) host.span()[i] = std::byte(i + 1);
  copy_to_device(*device, stream.value(), a.data(), host.span());
  fill(*device, stream.value(), {a.data(), 2}, 9);
  copy_on_device(*device, stream.value(), b.data(), {a.data(), 8});
  std::array<std::byte, 8> back{};
  copy_to_host(*device, stream.value(), back, b.data());
  stream.synchronize();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(int(back[i]), i < 2 ? 9 : int(i) + 1) << i;
  std::array<std::byte, 9> too_many{};
  expect_error(ErrorCode::internal, {"cuMemcpyHtoDAsync_v2 on cuda:0", "CUDA_ERROR_INVALID_VALUE"},
               [&] { copy_to_device(*device, stream.value(), a.data(), too_many); });
}

TEST_F(HandlesTest, CapturedCopiesReadTheHostWhenTheyAreReplayed) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  HostMemory host = HostMemory::allocate(device, 1);
  const DeviceMemory memory = DeviceMemory::allocate(device, 1);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  host.span()[0] = std::byte{1};
  copy_to_device(*device, stream.value(), memory.data(), host.span());
  const Graph graph = capture.end();
  EXPECT_EQ(graph.node_count(), 1u);
  const GraphExec exec = graph.instantiate();
  host.span()[0] = std::byte{7};
  exec.launch(stream.value());
  std::array<std::byte, 1> back{};
  copy_to_host(*device, stream.value(), back, memory.data());
  EXPECT_EQ(int(back[0]), 7);
}

TEST_F(HandlesTest, EventsOrderAndMeasure) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device), other = Stream::create(device);
  const Event begin = Event::create(device, true), end = Event::create(device, true);
  begin.record(stream.value());
  end.record(stream.value());
  end.synchronize();
  other.wait(end);
  EXPECT_GE(Event::elapsed_ms(begin, end), 0.0f);
}

TEST_F(HandlesTest, ModulesGiveFunctionsThatAreCompletelyLoaded) {
  const ContextRef device = context();
  const Module module = Module::load(device, stand_in_image("scale"));
  EXPECT_NE(module.function("scale"), nullptr);
  EXPECT_EQ(control_.count("cuFuncLoad"), 1);
  expect_error(ErrorCode::internal, {"no function other", "cuda:0", "extern \"C\""}, [&] { module.function("other"); });
  const std::vector<std::byte> junk(64, std::byte{1});
  expect_error(ErrorCode::internal, {"cuModuleLoadData on cuda:0", "CUDA_ERROR_INVALID_IMAGE"},
               [&] { Module::load(device, junk); });
  expect_error(ErrorCode::internal, {"empty image"}, [&] { Module::load(device, {}); });
}

TEST_F(HandlesTest, ADroppedCaptureLeavesTheStreamUsable) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  for (int round = 0; round < 2; ++round) {
    try {
      const ScopedCapture capture(device, stream.value(), CaptureMode::global);
      if (round == 1) {
        EXPECT_THROW(stream.synchronize(), Error);
      }
      throw std::runtime_error("in the middle");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::none);
    stream.synchronize();
    EXPECT_EQ(control_.live("graph"), 0);
  }
}

TEST_F(HandlesTest, ACaptureIsBegunAndEndedOnce) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  expect_error(ErrorCode::internal, {"cuStreamBeginCapture_v2", "CUDA_ERROR_ILLEGAL_STATE"},
               [&] { ScopedCapture(device, stream.value(), CaptureMode::global); });
  const Graph graph = capture.end();
  expect_error(ErrorCode::internal, {"ended twice"}, [&] { capture.end(); });
}

TEST_F(HandlesTest, DestructorsDoNotInvalidateACaptureOfAnotherThread) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  Graph old = [&] {
    ScopedCapture capture(device, stream.value(), CaptureMode::global);
    return capture.end();
  }();
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  std::thread([&] {
    const ScopedRelaxedCapture relaxed(*driver_);
    // One of each, alive until the mode is the default again.
    auto memory = DeviceMemory::allocate(device, 16);
    auto host = HostMemory::allocate(device, 16);
    auto module = Module::load(device, stand_in_image("scale"));
    auto exec = old.instantiate();
    int mode = 0;
    driver_->call(driver_->thread_exchange_capture_mode, -1, &mode);
    memory = {};
    host = {};
    module = {};
    exec = {};
    old = {};
  }).join();
  EXPECT_EQ(control_.live("memory") + control_.live("host") + control_.live("module"), 0);
  EXPECT_EQ(control_.live("graph") + control_.live("graph_exec"), 0);
  EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::active);
  const Graph graph = capture.end();
}

/// A use of every entry point that handles call, in an order that a test can break at any of them.
void use_everything(const std::shared_ptr<const DriverApi>& driver) {
  const ContextRef device = Context::retain(driver, 0);
  const Stream stream = Stream::create(device), other = Stream::create(device);
  const Event begin = Event::create(device, true), end = Event::create(device, true);
  const HostMemory host = HostMemory::allocate(device, 32);
  const DeviceMemory memory = DeviceMemory::allocate(device, 32);
  const Module module = Module::load(device, stand_in_image("scale"));
  module.function("scale");
  begin.record(stream.value());
  copy_to_device(*device, stream.value(), memory.data(), host.span());
  copy_on_device(*device, stream.value(), memory.data(), {memory.data() + 16, 16});
  fill(*device, stream.value(), {memory.data(), 32}, 0);
  copy_to_host(*device, stream.value(), host.span(), memory.data());
  end.record(stream.value());
  end.synchronize();
  Event::elapsed_ms(begin, end);
  other.wait(end);
  stream.synchronize();
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  fill(*device, stream.value(), {memory.data(), 32}, 1);
  const Graph graph = capture.end();
  graph.node_count();
  const GraphExec exec = graph.instantiate();
  exec.launch(stream.value());
}

/// Entry points whose failure leaves something to the driver, or that only destructors call.
bool only_destroys(const std::string& name) {
  return name.find("Destroy") != std::string::npos || name.find("Free") != std::string::npos ||
         name == "cuModuleUnload" || name == "cuDevicePrimaryCtxRelease_v2" || name == "cuCtxPopCurrent_v2" ||
         name == "cuThreadExchangeStreamCaptureMode";
}

TEST_F(HandlesTest, EveryEntryPointFailingOnceIsAClearErrorAndNoLeak) {
  std::map<std::string, int> uses;
  const std::uint64_t begin = control_.call_count();
  use_everything(driver_);
  for (const StandInCall& call : control_.calls(begin))
    if (call.thread != 0) ++uses[call.name];  // not what a graph replayed
  EXPECT_GT(uses.size(), 30u);
  int broken = 0;
  for (const auto& [name, count] : uses) {
    if (only_destroys(name)) continue;
    // Pushes of destructors fail silently: they go on without.
    const int last = name == "cuCtxPushCurrent_v2" ? 1 : count;
    for (int skip = 0; skip < last; ++skip) {
      SCOPED_TRACE(name + " call " + std::to_string(skip));
      control_.fail(name.c_str(), skip, 999);
      expect_error(ErrorCode::internal, {name, "999"}, [&] { use_everything(driver_); });
      expect_nothing_left();
      ++broken;
    }
  }
  EXPECT_GE(broken, 28);  // every kind of call, and each place that makes it
}

TEST_F(HandlesTest, OutOfMemoryAnywhereIsUnavailableAndNoLeak) {
  for (const char* name : {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuEventCreate", "cuMemAlloc_v2",
                           "cuMemHostAlloc", "cuModuleLoadData", "cuGraphInstantiateWithFlags"}) {
    control_.fail(name, 0, kOutOfMemory);
    expect_error(ErrorCode::unavailable, {name, "CUDA_ERROR_OUT_OF_MEMORY"}, [&] { use_everything(driver_); });
    expect_nothing_left();
  }
}

TEST_F(HandlesTest, WhatTheDriverRefusesToDestroyIsNotThrown) {
  const ContextRef device = context();
  CUstream refused = nullptr;
  {
    const Stream stream = Stream::create(device);
    refused = stream.value();
    control_.fail("cuStreamDestroy_v2", 0, kInvalidValue);
  }
  EXPECT_EQ(control_.live("stream"), 1);
  driver_->call(driver_->stream_destroy, 0, refused);
  // Without a current context or a relaxed mode, what can be destroyed still is, and nothing else is changed.
  control_.fail("cuCtxPushCurrent_v2", 1, kInvalidValue);
  control_.fail("cuThreadExchangeStreamCaptureMode", 0, kInvalidValue);
  { const Stream stream = Stream::create(device); }
  EXPECT_EQ(control_.failures_left(), 0);
}

}  // namespace
}  // namespace fourfold::cuda
