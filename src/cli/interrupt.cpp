// Ctrl-C, TERM and a closed terminal as an exception at a safe point, so that destructors remove what is half-written.
#include "interrupt.h"

#include <csignal>

namespace fourfold::cli {
namespace {

volatile std::sig_atomic_t pending_signal = 0;
void (*former_int)(int) = SIG_DFL;
void (*former_term)(int) = SIG_DFL;
void (*former_hang_up)(int) = SIG_DFL;

void note_signal(int signal) { pending_signal = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  pending_signal = 0;
  former_int = std::signal(SIGINT, note_signal);
  former_term = std::signal(SIGTERM, note_signal);
  former_hang_up = std::signal(SIGHUP, note_signal);
  if (former_hang_up == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // started under nohup: goes on without its terminal
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, former_int);
  std::signal(SIGTERM, former_term);
  std::signal(SIGHUP, former_hang_up);
}

void InterruptGuard::poll() const {
  if (pending_signal != 0) throw Interrupted{pending_signal};
}

}  // namespace fourfold::cli
