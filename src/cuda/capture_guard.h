// Stream capture: is a stream being captured, and how a thread may work while others capture.
// Source: CUDA Driver API reference, cuStreamIsCapturing and cuThreadExchangeStreamCaptureMode.
#pragma once

#include <string_view>

#include "cuda/driver_api.h"

namespace fourfold::cuda {

/// States of a stream. Any but `none` means that nothing may be loaded, allocated or waited for on its behalf; an
/// invalidated capture too, because the caller has yet to end it.
enum class CaptureState { none, active, invalidated };
/// "none", "active", "invalidated". Pure.
std::string_view capture_state_name(CaptureState state) noexcept;

/// Asks the driver about `stream`, whatever device or context is current. Legal under capture; changes nothing.
/// The null stream counts as active while another stream's capture forbids its use. Throws as DriverApi::call does.
CaptureState capture_state(const DriverApi& driver, int device, CUstream stream);

/// While it lives, the calling thread may allocate, free, load and wait although other threads capture, without
/// invalidating their captures; the mode found is restored at the end. Stays on the thread that made it.
/// Throws as DriverApi::call does; the mode is then unchanged.
class ScopedRelaxedCapture {
 public:
  explicit ScopedRelaxedCapture(const DriverApi& driver);
  ~ScopedRelaxedCapture();
  ScopedRelaxedCapture(const ScopedRelaxedCapture&) = delete;
  ScopedRelaxedCapture& operator=(const ScopedRelaxedCapture&) = delete;

 private:
  const DriverApi& driver_;
  int mode_ = static_cast<int>(CaptureMode::relaxed);
};

}  // namespace fourfold::cuda
