// What the driver says of this machine's GPUs, for the public header.
#include "cuda/survey.h"

#include <fmt/format.h>

#include "core/log.h"
#include "cuda/device.h"
#include "fourfold/error.h"

namespace fourfold {
namespace cuda {
namespace {

Gpu gpu_of(const DeviceReport& report) {
  constexpr int kKhzPerMhz = 1000;
  Gpu gpu;
  gpu.ordinal = report.ordinal;
  gpu.device = report.device;
  gpu.compute_capability = fmt::format("{}.{}", report.compute_major, report.compute_minor);
  gpu.clock_mhz = report.clock_khz / kKhzPerMhz;
  gpu.memory_clock_mhz = report.memory_clock_khz / kKhzPerMhz;
  gpu.memory_bus_bits = report.memory_bus_bits;
  gpu.l2_bytes = report.l2_bytes;
  gpu.memory_gb_per_s = report.memory_gb_per_s();
  return gpu;
}

}  // namespace

GpuSurvey survey(const DriverOpening& opening) {
  GpuSurvey survey;
  survey.reason = opening.reason;
  if (opening.driver == nullptr) return survey;
  survey.driver_version = version_text(opening.driver->version());
  survey.driver_path = opening.driver->library_path();
  int count = 0;
  try {
    count = device_count(*opening.driver);
    if (count == 0) survey.reason = "the driver shows no GPU; see CUDA_VISIBLE_DEVICES";
  } catch (const Error& error) {
    survey.reason = error.what();
  }
  std::string broken;  // one that fell off its bus must not hide the others
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    try {
      survey.gpus.push_back(gpu_of(read_device(*opening.driver, ordinal)));
    } catch (const Error& error) {
      broken += fmt::format("{}cuda:{} cannot be used: {}", broken.empty() ? "" : "; ", ordinal, error.what());
    }
  }
  if (survey.gpus.empty() && !broken.empty())
    survey.reason = broken;
  else if (!broken.empty())
    log_warn(broken);
  return survey;
}

}  // namespace cuda

GpuSurvey survey_gpus() { return cuda::survey(cuda::try_open_driver()); }

Device cuda_device(int ordinal) { return cuda::read_device(*cuda::DriverApi::open(), ordinal).device; }

}  // namespace fourfold
