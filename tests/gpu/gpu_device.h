// The GPU under test, through a driver table that counts what a stream capture forbids.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/handles.h"
#include "fourfold/backend.h"

namespace fourfold::gpu_test {

/// What happened between the beginning and the end of captures, by the threads that captured, other than launches.
/// None of it is allowed, so that each of these but `captures` ends as zero.
struct CallsInCapture {
  std::atomic<std::uint64_t> captures{0};          ///< begun
  std::atomic<std::uint64_t> compiles{0};          ///< images compiled by the backend that was captured
  std::atomic<std::uint64_t> loads{0};             ///< cuModuleLoadData, cuFuncLoad
  std::atomic<std::uint64_t> allocations{0};       ///< cuMemAlloc, cuMemFree, cuMemHostAlloc, cuMemFreeHost
  std::atomic<std::uint64_t> synchronisations{0};  ///< cuStreamSynchronize, cuEventSynchronize
};
CallsInCapture& calls_in_capture();

/// While it lives, calls of this thread are not counted: a test makes a forbidden call on purpose, or works for a
/// stream that is not captured.
class DeliberateCalls {
 public:
  DeliberateCalls();
  ~DeliberateCalls();
  DeliberateCalls(const DeliberateCalls&) = delete;
  DeliberateCalls& operator=(const DeliberateCalls&) = delete;
};

/// The machine's driver with counting entry points; opened once. Throws unavailable when there is none.
const std::shared_ptr<const cuda::DriverApi>& counting_driver();
int gpu_count();
/// The primary context of GPU `ordinal`.
cuda::ContextRef context(int ordinal = 0);

/// A backend of its own: nothing loaded, all counters zero. Settings: the environment's unless given.
std::shared_ptr<Backend> new_backend(int ordinal = 0);
std::shared_ptr<Backend> new_backend(int ordinal, const Settings& settings, bool naive_kernels = false);
/// The one that most tests share, on GPU 0; made at the first call.
Backend& gpu();
/// The same with the plain twins of the kernels.
Backend& naive_gpu();
/// Ends them, before the driver ends with the process. Nobody may use them afterwards.
void close_gpu();
/// Where the kernels of both came from.
KernelCounters shared_counters();

/// From now on backends are made with this fault in their kernels or workspaces; their code is compiled here, never
/// read or kept. Before the first backend.
void plant(const std::string& fault);
/// Whether plant() asked for workspaces that are too short.
bool workspaces_are_short();

/// The compiler that backends of the environment's settings would use: "nvrtc 13.0", or why there is none.
struct Compiler {
  std::string version;  ///< empty when there is none
  std::string reason;   ///< empty when there is one
};
Compiler find_compiler();

/// How much a run does: quick takes a sample of the long lists.
enum class Depth { quick, full };
Depth& depth();
/// Whether the time that this run was given (--seconds) is over; never without one.
bool out_of_time();
void set_deadline(double seconds);
/// Where the case files are.
std::string& cases_folder();

}  // namespace fourfold::gpu_test
