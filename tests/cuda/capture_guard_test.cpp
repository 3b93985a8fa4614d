// Capture states of given streams, and the exchange of a thread's capture mode.
#include "cuda/capture_guard.h"

#include <gtest/gtest.h>

#include <thread>

#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

using CaptureGuardTest = StandInTest;

TEST_F(CaptureGuardTest, StatesOfAStreamInEveryMode) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::thread_local_mode, CaptureMode::relaxed}) {
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::none);
    ScopedCapture capture(device, stream.value(), mode);
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::active);
    EXPECT_THROW(stream.synchronize(), Error);
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::invalidated);
    expect_error(ErrorCode::usage, {"cuStreamEndCapture", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                 [&] { capture.end(); });
    EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::none);
  }
}

TEST_F(CaptureGuardTest, AsksTheGivenStreamAndNoOther) {
  const ContextRef device = context();
  const Stream captured = Stream::create(device), other = Stream::create(device);
  const ScopedCapture capture(device, captured.value(), CaptureMode::global);
  EXPECT_EQ(capture_state(*driver_, 0, captured.value()), CaptureState::active);
  EXPECT_EQ(capture_state(*driver_, 0, other.value()), CaptureState::none);
}

TEST_F(CaptureGuardTest, AStreamThatJoinedACaptureIsCaptured) {
  const ContextRef device = context();
  const Stream origin = Stream::create(device), joined = Stream::create(device);
  const Event fork = Event::create(device, false), join = Event::create(device, false);
  ScopedCapture capture(device, origin.value(), CaptureMode::global);
  fork.record(origin.value());
  joined.wait(fork);
  EXPECT_EQ(capture_state(*driver_, 0, joined.value()), CaptureState::active);
  join.record(joined.value());
  origin.wait(join);
  const Graph graph = capture.end();
  EXPECT_EQ(capture_state(*driver_, 0, joined.value()), CaptureState::none);
}

TEST_F(CaptureGuardTest, WorksWhateverDeviceIsCurrent) {
  const ContextRef first = context(0), second = context(1);
  const Stream stream = Stream::create(second);
  const ScopedCapture capture(second, stream.value(), CaptureMode::global);
  const ContextGuard current(*first);
  EXPECT_EQ(capture_state(*driver_, 1, stream.value()), CaptureState::active);
}

TEST_F(CaptureGuardTest, AnImplicitCaptureCountsAndOtherErrorsAreThrown) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  control_.fail("cuStreamIsCapturing", 0, kStreamCaptureImplicit);
  EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::active);
  control_.fail("cuStreamIsCapturing", 0, kInvalidHandle);
  expect_error(ErrorCode::internal, {"cuStreamIsCapturing on cuda:0", "CUDA_ERROR_INVALID_HANDLE"},
               [&] { capture_state(*driver_, 0, stream.value()); });
}

TEST_F(CaptureGuardTest, TheModeIsRelaxedInsideAndRestoredAfter) {
  for (const int before : {0, 1, 2}) {
    int mode = before;
    driver_->call(driver_->thread_exchange_capture_mode, -1, &mode);
    {
      const ScopedRelaxedCapture relaxed(*driver_);
      EXPECT_EQ(control_.thread_mode(), 2);
      {
        const ScopedRelaxedCapture nested(*driver_);
        EXPECT_EQ(control_.thread_mode(), 2);
      }
      EXPECT_EQ(control_.thread_mode(), 2);
    }
    EXPECT_EQ(control_.thread_mode(), before);
    mode = 0;
    driver_->call(driver_->thread_exchange_capture_mode, -1, &mode);
  }
}

TEST_F(CaptureGuardTest, TheModeIsRestoredWhenAnErrorPasses) {
  try {
    const ScopedRelaxedCapture relaxed(*driver_);
    throw std::runtime_error("passing");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(control_.thread_mode(), 0);
}

TEST_F(CaptureGuardTest, AFailedExchangeThrowsAndChangesNothing) {
  control_.fail("cuThreadExchangeStreamCaptureMode", 0, kInvalidValue);
  expect_error(ErrorCode::internal, {"cuThreadExchangeStreamCaptureMode"},
               [&] { const ScopedRelaxedCapture relaxed(*driver_); });
  EXPECT_EQ(control_.thread_mode(), 0);
}

TEST_F(CaptureGuardTest, OnlyTheRelaxedThreadMayAllocateWhileAnotherCaptures) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  ScopedCapture capture(device, stream.value(), CaptureMode::global);
  std::thread([&] {
    const ScopedRelaxedCapture relaxed(*driver_);
    EXPECT_EQ(DeviceMemory::allocate(device, 64).bytes(), 64u);
  }).join();
  EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::active);
  std::thread([&] {
    expect_error(ErrorCode::usage, {"cuMemAlloc_v2", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                 [&] { DeviceMemory::allocate(device, 64); });
  }).join();
  EXPECT_EQ(capture_state(*driver_, 0, stream.value()), CaptureState::invalidated);
}

TEST(CaptureState, HasNames) {
  EXPECT_EQ(capture_state_name(CaptureState::none), "none");
  EXPECT_EQ(capture_state_name(CaptureState::active), "active");
  EXPECT_EQ(capture_state_name(CaptureState::invalidated), "invalidated");
}

}  // namespace
}  // namespace fourfold::cuda
