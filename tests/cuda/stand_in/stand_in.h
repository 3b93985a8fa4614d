// How tests steer and read the stand-in CUDA driver, a shared object with the entry points that the library uses.
// It keeps records: memory comes from malloc, streams have the capture states of a real driver, modules and functions
// are names, copies copy at once or when their graph is launched. It runs no kernel and pretends nothing about results.
// Result codes of calls during a capture follow a driver of CUDA 13.
#pragma once

#include <cstdint>

extern "C" {

/// One call of the driver, as logged. `thread` tells threads apart; 0 for a node that a graph launch replays.
struct StandInCall {
  char name[48];
  char arguments[160];
  std::uint64_t thread;
  int result;
};

/// Back to the start: two devices of capability 9.0 with 64 GiB, an empty log, nothing injected, not initialised.
/// Objects still alive stay.
void stand_in_reset();
/// Drops what is alive from the records, after a destruction that was made to fail. Handles to it are then unknown.
void stand_in_forget();
void stand_in_set_device_count(int count);
void stand_in_set_attribute(int device, int attribute, int value);
/// Allocations beyond `bytes` on `device` fail with out of memory.
void stand_in_set_memory_limit(int device, std::uint64_t bytes);
/// 0: loading a module is legal under capture, as with a lazily loading driver. 1 (default): it is an unsafe call.
void stand_in_set_strict_module_load(int strict);
/// The time between two events is that of the kernels that ran between their records, each of `microseconds` (default:
/// what STAND_IN_LAUNCH_US in the environment says, else 0).
void stand_in_set_launch_us(double microseconds);
/// The call number `skip` (from 0) of entry point `name` from now on returns `result` and does nothing else. Once.
void stand_in_fail(const char* name, int skip, int result);
/// Failures asked for that did not happen yet.
int stand_in_failures_left();

std::uint64_t stand_in_call_count();
/// False when there is no call `index`.
bool stand_in_get_call(std::uint64_t index, StandInCall* call);

/// The argument of accepted launch number `launch` (from 0, since the reset), of whose bytes at most `capacity` are
/// copied. Returns how many there are: 0 when there was no such launch or its image has no "params=BYTES".
std::uint64_t stand_in_get_params(std::uint64_t launch, void* bytes, std::uint64_t capacity);

/// Objects alive: "context" (retains), "stream", "event", "module", "memory", "host", "graph", "graph_exec".
/// -1 for another name.
int stand_in_live(const char* kind);
std::uint64_t stand_in_memory_used(int device);
/// Of the calling thread; not logged.
int stand_in_thread_mode();
int stand_in_context_depth();
/// Sessions of the management library that were begun and not ended.
int stand_in_management_sessions();
}
