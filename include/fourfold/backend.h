// A device that runs plans: the CPU now, NVIDIA GPUs by the same interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fourfold/plan.h"
#include "fourfold/settings.h"

namespace fourfold {

class BackendInterface;  // src/backend/backend_interface.h

/// An explicit stream of the backend's device. The CPU has one, null: calls return when the work is done.
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

/// Owns the device's long-lived state. Thread-safe unless a member says otherwise.
class Backend {
 public:
  explicit Backend(std::unique_ptr<BackendInterface> interface);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  const Device& device() const noexcept;
  BackendInterface& interface() const noexcept { return *interface_; }

 private:
  std::unique_ptr<BackendInterface> interface_;
};

/// The CPU. ISA: the widest that the machine has, capped by settings.cpu_isa. Throws usage for a bad cap.
std::shared_ptr<Backend> cpu_backend(const Settings& settings = settings_from_environment());

/// Measures what the backend's machine can do; takes about a second and, while it runs, at least 1 GiB of memory.
/// Throws unavailable when that memory is not there. Not meant to run beside other work.
Probes measure_probes(Backend& backend);

/// A workspace for those who do not bring their own: `plan.workspace_bytes()` bytes, base aligned to 256.
class Workspace {
 public:
  static Workspace allocate(const Plan& plan, Backend& backend);
  static Workspace allocate(std::uint64_t bytes, Backend& backend);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  std::span<std::byte> span() const noexcept { return {data_, bytes_}; }

 private:
  Workspace(BackendInterface* interface, std::byte* data, std::uint64_t bytes)
      : interface_(interface), data_(data), bytes_(bytes) {}
  BackendInterface* interface_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace fourfold
