// Memory that captured copies name lives as long as what may replay them.
#include <gtest/gtest.h>

#include <cstring>

#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

class GraphLifetimeTest : public StandInTest {
 protected:
  void SetUp() override {
    StandInTest::SetUp();
    context_ = context();
    stream_ = Stream::create(context_);
    memory_ = DeviceMemory::allocate(context_, 16);
  }
  void TearDown() override {
    memory_ = {};
    stream_ = {};
    context_.reset();
    StandInTest::TearDown();
  }
  /// 16 bytes of `value` in page-locked memory.
  std::shared_ptr<HostMemory> host_of(int value) {
    auto host = std::make_shared<HostMemory>(HostMemory::allocate(context_, 16));
    std::memset(host->span().data(), value, 16);
    return host;
  }
  /// A graph that copies 16 bytes of `value` to the device; the caller's reference to them is gone.
  Graph copying(int value) {
    const auto host = host_of(value);
    ScopedCapture capture(context_, stream_.value(), CaptureMode::global);
    copy_to_device(*context_, stream_.value(), memory_.data(), host->span());
    capture.keep(host);
    return capture.end();
  }
  int first_byte() {
    std::array<std::byte, 16> back{};
    copy_to_host(*context_, stream_.value(), back, memory_.data());
    stream_.synchronize();
    return std::to_integer<int>(back[0]);
  }
  std::size_t position(const std::string& name) const {
    const auto calls = control_.calls();
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (name == calls[i].name) return i;
    ADD_FAILURE() << "no call " << name;
    return calls.size();
  }

  ContextRef context_;
  Stream stream_;
  DeviceMemory memory_;
};

TEST_F(GraphLifetimeTest, AReplayAfterTheCallerDroppedItsReferenceCopiesTheRightBytes) {
  const GraphExec exec = copying(0x42).instantiate();
  const HostMemory other = HostMemory::allocate(context_, 16);  // would have the address, had it been freed
  std::memset(other.span().data(), 0x13, 16);
  for (int round = 0; round < 2; ++round) {
    fill(*context_, stream_.value(), {memory_.data(), 16}, 0);
    exec.launch(stream_.value());
    EXPECT_EQ(first_byte(), 0x42);
  }
}

TEST_F(GraphLifetimeTest, TheLastOfGraphAndExecsLetsGo) {
  Graph graph = copying(1);
  GraphExec first = graph.instantiate(), second = graph.instantiate();
  EXPECT_EQ(control_.live("host"), 1);
  graph = {};
  first = {};
  EXPECT_EQ(control_.live("host"), 1);
  second.launch(stream_.value());
  second = {};
  EXPECT_EQ(control_.live("host"), 0);
}

TEST_F(GraphLifetimeTest, AnExecIsDestroyedBeforeItsMemory) {
  { const GraphExec exec = copying(1).instantiate(); }
  EXPECT_LT(position("cuGraphExecDestroy"), position("cuMemFreeHost"));
}

TEST_F(GraphLifetimeTest, AnAssignedExecIsDestroyedBeforeItsMemory) {
  GraphExec exec = copying(1).instantiate();
  exec = copying(2).instantiate();
  EXPECT_EQ(control_.live("host"), 1);
  EXPECT_LT(position("cuGraphExecDestroy"), position("cuMemFreeHost"));
  exec.launch(stream_.value());
  EXPECT_EQ(first_byte(), 2);
}

TEST_F(GraphLifetimeTest, AGraphIsDestroyedBeforeItsMemory) {
  copying(1);
  EXPECT_EQ(control_.live("host"), 0);
  EXPECT_LT(position("cuGraphDestroy"), position("cuMemFreeHost"));
}

TEST_F(GraphLifetimeTest, MovingHandsOn) {
  Graph graph = copying(3);
  Graph moved = std::move(graph);
  graph = {};
  GraphExec exec = moved.instantiate();
  moved = {};
  const GraphExec moved_exec = std::move(exec);
  exec = {};
  EXPECT_EQ(control_.live("host"), 1);
  moved_exec.launch(stream_.value());
  EXPECT_EQ(first_byte(), 3);
}

TEST_F(GraphLifetimeTest, ADroppedOrInvalidatedCaptureKeepsNothing) {
  for (const bool invalidated : {false, true}) {
    {
      ScopedCapture capture(context_, stream_.value(), CaptureMode::global);
      // Made before the capture in real use: here the thread may, because its mode is relaxed.
      int mode = static_cast<int>(CaptureMode::relaxed);
      driver_->call(driver_->thread_exchange_capture_mode, 0, &mode);
      capture.keep(host_of(1));
      driver_->call(driver_->thread_exchange_capture_mode, 0, &mode);
      EXPECT_EQ(control_.live("host"), 1);
      if (invalidated) {
        EXPECT_THROW(stream_.synchronize(), Error);
        EXPECT_THROW(capture.end(), Error);
      }
    }
    EXPECT_EQ(control_.live("host"), 0);
  }
}

TEST_F(GraphLifetimeTest, AnythingCanBeKept) {
  const auto token = std::make_shared<int>(5);
  ScopedCapture capture(context_, stream_.value(), CaptureMode::global);
  capture.keep(token);
  capture.keep(token);
  EXPECT_EQ(token.use_count(), 3);
  { const Graph graph = capture.end(); }
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(GraphLifetimeTest, KeepingMakesNoDriverCallAndEndsWithTheCapture) {
  ScopedCapture capture(context_, stream_.value(), CaptureMode::global);
  const std::uint64_t begin = control_.call_count();
  capture.keep(std::make_shared<int>(5));
  EXPECT_EQ(control_.call_count(), begin);
  const Graph graph = capture.end();
  expect_error(ErrorCode::usage, {"cuda:0 has ended", "before end()"}, [&] { capture.keep(nullptr); });
}

}  // namespace
}  // namespace fourfold::cuda
