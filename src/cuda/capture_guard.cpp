// Stream capture: states and thread modes.
#include "cuda/capture_guard.h"

#include "core/check.h"
#include "core/log.h"

namespace fourfold::cuda {

std::string_view capture_state_name(CaptureState state) noexcept {
  switch (state) {
    case CaptureState::none:
      return "none";
    case CaptureState::active:
      return "active";
    case CaptureState::invalidated:
      break;
  }
  return "invalidated";
}

CaptureState capture_state(const DriverApi& driver, int device, CUstream stream) {
  int state = kCaptureNone;
  const CUresult result = driver.stream_is_capturing.function(stream, &state);
  if (result == kStreamCaptureImplicit) return CaptureState::active;
  driver.check_result(driver.stream_is_capturing, device, result);
  if (state == kCaptureNone) return CaptureState::none;
  // A state of a later driver is no reason to load: only "none" is.
  return state == kCaptureActive ? CaptureState::active : CaptureState::invalidated;
}

ScopedRelaxedCapture::ScopedRelaxedCapture(const DriverApi& driver) : driver_(driver) {
  driver.call(driver.thread_exchange_capture_mode, -1, &mode_);
}

ScopedRelaxedCapture::~ScopedRelaxedCapture() {
  const CUresult result = driver_.thread_exchange_capture_mode.function(&mode_);
  if (result != kSuccess && result != kDeinitialized)
    log_error(fmt::format("the thread's capture mode could not be restored: {}", driver_.result_text(result)));
}

}  // namespace fourfold::cuda
