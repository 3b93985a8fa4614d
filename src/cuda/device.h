// What the driver says of a GPU: the description that planning needs, and what `doctor` prints besides.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/driver_api.h"
#include "fourfold/plan.h"

namespace fourfold::cuda {

struct DeviceReport {
  Device device;  ///< kind, name, arch, multiprocessors, shared_memory_bytes, memory_bytes
  int ordinal = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int clock_khz = 0;         ///< typical clock of the multiprocessors
  int memory_clock_khz = 0;  ///< peak
  int memory_bus_bits = 0;
  int l2_bytes = 0;
  int driver_version = 0;  ///< DriverApi::version

  /// Peak bytes per second of the memory over 10^9: two transfers per clock on the whole bus.
  double memory_gb_per_s() const noexcept;
};

/// The architecture whose kernels run on a compute capability, as compilers write it. 8.x runs code for sm_80; code for
/// 9.0, 10.0 and 12.0 uses features of just that capability ("sm_90a"). Others are named alike, and planning refuses
/// what it has no kernels for. Pure.
std::string arch_name(int compute_major, int compute_minor);

/// "12.4" for 12040. Pure.
std::string version_text(int version);

/// GPUs that this process may use. Throws as DriverApi::call does.
int device_count(const DriverApi& driver);

/// Describes GPU `ordinal`; needs no context and makes none. Throws unavailable when there is no such GPU, naming how
/// many there are; else as DriverApi::call does. Thread-safe.
DeviceReport read_device(const DriverApi& driver, int ordinal);

}  // namespace fourfold::cuda
