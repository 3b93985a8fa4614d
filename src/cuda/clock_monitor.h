// Clocks and throttle reasons of one GPU, from NVIDIA's management library when it is there.
// Names, parameters and values are those of the NVML API reference, whose ABI only grows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dynamic_library.h"
#include "cuda/handles.h"

namespace fourfold::cuda {

/// One reading.
struct ClockSample {
  std::uint32_t sm_mhz = 0;
  std::uint64_t throttle_bits = 0;  ///< nvmlClocksThrottleReasons
  std::optional<double> power_w;    ///< of the whole card; empty when the library does not say
};

/// Why a clock is lower than it could be, in words: "power cap", "thermal", ... Idle and clocks that somebody set are
/// no such reasons. Pure.
std::vector<std::string> throttle_reasons(std::uint64_t bits);

/// The loader's name of the management library on Linux.
inline constexpr const char* kManagementLibrary = "libnvidia-ml.so.1";

/// An open management library and a device in it. Absent (every sample empty) where there is none: no error.
class ClockMonitor {
 public:
  ClockMonitor() = default;
  /// The device of `context`, by its PCI address. `reason()` says why there is none. Never throws Error.
  static ClockMonitor open(const Context& context, const std::string& library = kManagementLibrary);
  ~ClockMonitor();
  ClockMonitor(ClockMonitor&& other) noexcept;
  ClockMonitor& operator=(ClockMonitor&& other) noexcept;
  /// Asks now; a fraction of a millisecond on the host, nothing on the device.
  std::optional<ClockSample> sample() const;
  /// Empty when there is a device.
  const std::string& reason() const noexcept { return reason_; }

 private:
  using Result = int;
  using DeviceHandle = struct nvmlDevice_st*;
  struct Calls {
    Result (*init)() = nullptr;
    Result (*shutdown)() = nullptr;
    Result (*handle_by_pci)(const char*, DeviceHandle*) = nullptr;
    Result (*clock_info)(DeviceHandle, int, unsigned int*) = nullptr;
    Result (*throttle)(DeviceHandle, unsigned long long*) = nullptr;
    Result (*power)(DeviceHandle, unsigned int*) = nullptr;  // optional
  };
  DynamicLibrary library_;
  Calls calls_;
  DeviceHandle device_ = nullptr;
  std::string reason_ = "not opened";
};

}  // namespace fourfold::cuda
