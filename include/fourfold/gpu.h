// What GPUs this machine has, for planning and for people. Makes no context and allocates nothing on a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fourfold/plan.h"

namespace fourfold {

struct Gpu {
  int ordinal = 0;  ///< by the driver's numbering
  Device device;    ///< name, arch, multiprocessors, shared_memory_bytes, memory_bytes
  std::string compute_capability;  ///< "9.0"
  int clock_mhz = 0;               ///< typical clock of the multiprocessors
  int memory_clock_mhz = 0;        ///< peak
  int memory_bus_bits = 0;
  std::int64_t l2_bytes = 0;
  double memory_gb_per_s = 0;  ///< peak, from clock and bus
};

struct GpuSurvey {
  std::string driver_version;  ///< newest CUDA that the driver runs, "13.0"; empty without a driver
  std::string driver_path;     ///< of the driver library; empty without a driver
  std::string reason;          ///< why no GPU can be used; empty when one can
  std::vector<Gpu> gpus;       ///< those that can be used; one that cannot is warned about in the log
};

/// Opens the driver and asks it. Never throws for what is missing: the reason says it. Thread-safe.
GpuSurvey survey_gpus();

/// GPU `ordinal` as planning needs it. Throws unavailable with the reason when there is none.
Device cuda_device(int ordinal);

}  // namespace fourfold
