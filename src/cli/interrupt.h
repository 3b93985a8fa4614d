// Ctrl-C and TERM as an exception at a safe point, so that destructors remove what is half-written.
#pragma once

namespace fourfold::cli {

/// Thrown by InterruptGuard::poll. The exit code is 128 + signal, as shells have it.
struct Interrupted {
  int signal = 0;
};

/// While it lives, INT and TERM are noted instead of ending the process. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  /// Restores the former handlers.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  /// Throws Interrupted when a signal came. Call it where unwinding is safe.
  void poll() const;
};

}  // namespace fourfold::cli
