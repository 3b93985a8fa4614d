// A device that runs plans: a CPU or an NVIDIA GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fourfold/plan.h"
#include "fourfold/settings.h"

namespace fourfold {

class BackendInterface;  // src/backend/backend_interface.h

/// An explicit stream of the backend's device. The CPU has one, null: calls return when the work is done. On a GPU a
/// CUstream (cudaStream_t), never null: who means the default stream says CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
struct Stream {
  void* handle = nullptr;
};

/// What the machine can do at most, measured now.
struct Probes {
  double read_gb_per_s = 0;  ///< best of five passes over at least 1 GiB, all threads, the widest loads
  /// Register-only, all threads, the instruction set in use; at least 16 accumulators, 12 where there are only 16
  /// vector registers (ten hide the latency of two pipes).
  double bf16_gflop_per_s = 0;
  double f32_gflop_per_s = 0;  ///< the same with fp32 FMA
};

/// Owns the device's long-lived state. Thread-safe unless a member says otherwise. cpu_backend() and cuda_backend()
/// make them; it must outlive the workspaces and bindings that were made with it.
class Backend {
 public:
  /// For cpu_backend(), cuda_backend() and tests. Throws usage for null.
  explicit Backend(std::unique_ptr<BackendInterface> interface);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  /// What to plan with: the device as it was found when the backend was made.
  const Device& device() const noexcept;
  /// The seam below the public functions, for src/ and tests.
  BackendInterface& interface() const noexcept { return *interface_; }

 private:
  std::unique_ptr<BackendInterface> interface_;
};

/// The CPU. ISA: the widest that the machine has, capped by settings.cpu_isa. Throws usage for a bad cap.
std::shared_ptr<Backend> cpu_backend(const Settings& settings = settings_from_environment());

/// NVIDIA GPU `ordinal` by the driver's numbering. Opens the driver, retains the GPU's primary context (seconds and
/// some hundred MiB of device memory when the process has none yet) and creates one stream; compiles and loads nothing.
/// Throws unavailable with the reason: no driver, no such GPU, the driver's refusal.
std::shared_ptr<Backend> cuda_backend(int ordinal = 0, const Settings& settings = settings_from_environment());

/// From now on a kernel that is not loaded is an error, raised before any disk look-up, compile or load. Cannot be
/// undone. Thread-safe; no effect on the CPU, whose kernels are linked in.
void freeze(Backend& backend);

/// How often one kernel was launched.
struct KernelLaunches {
  std::string kernel;          ///< KernelSpec name, as plan.kernels() has it
  std::uint64_t launches = 0;  ///< by run(); a captured launch counts once, its replays do not
};

/// Where this backend's kernels came from since it was made, and how often they were launched.
struct KernelCounters {
  std::uint64_t from_memory = 0;  ///< resolved without looking further: loaded on the device already
  std::uint64_t from_pack = 0;    ///< images read from a kernel pack
  std::uint64_t from_disk = 0;    ///< images read from the disk cache
  std::uint64_t compiled = 0;     ///< images compiled here
  std::uint64_t loaded = 0;       ///< modules loaded on the device
  std::uint64_t refusals = 0;     ///< misses under capture or after freeze()
  std::vector<KernelLaunches> launches;  ///< every loaded kernel, ascending by name
};
/// A snapshot; all zero on the CPU. Thread-safe.
KernelCounters kernel_counters(const Backend& backend);

/// A stream of the backend's own, for those who bring none; lives as long as the backend. Null on the CPU.
Stream own_stream(Backend& backend) noexcept;
/// Waits until everything enqueued on `stream` is done; errors of earlier work surface here. Throws usage when `stream`
/// is captured, and leaves that capture as it is; legal while other streams are captured.
void synchronize(Backend& backend, Stream stream);

// Host memory to and from memory of the backend's device, on its own stream; done on return. Sizes must be equal; throw
// usage when they are not, unavailable or internal with the driver's text. Forbidden under capture of that stream;
// legal while other streams are captured.
void copy_to_device(Backend& backend, std::span<std::byte> device, std::span<const std::byte> host);
void copy_to_host(Backend& backend, std::span<std::byte> host, std::span<const std::byte> device);
/// Every byte of `device` becomes `value`. Errors and effects as above.
void fill(Backend& backend, std::span<std::byte> device, unsigned char value);

/// Measures what the backend's machine can do; takes about a second and, while it runs, at least 1 GiB of memory.
/// Throws unavailable when that memory is not there, unsupported on a GPU. Not meant to run beside other work.
Probes measure_probes(Backend& backend);

/// A workspace for those who do not bring their own: `plan.workspace_bytes()` bytes, base aligned to 256. It must be
/// destroyed before its backend, and after the last run, and the last graph that captured a run, which uses it.
class Workspace {
 public:
  /// Throws unavailable with the bytes asked for when the device has too few free. Legal while streams are captured.
  static Workspace allocate(const Plan& plan, Backend& backend);
  /// The same for a size of the caller's own, as the largest of several plans.
  static Workspace allocate(std::uint64_t bytes, Backend& backend);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  /// Device memory: on a GPU the host must not look behind it.
  std::span<std::byte> span() const noexcept { return {data_, bytes_}; }

 private:
  Workspace(BackendInterface* interface, std::byte* data, std::uint64_t bytes)
      : interface_(interface), data_(data), bytes_(bytes) {}
  BackendInterface* interface_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace fourfold
