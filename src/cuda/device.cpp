// Reading a GPU's attributes. Source: CUDA Driver API reference, "Device Management".
#include "cuda/device.h"

#include <array>

#include "core/check.h"

namespace fourfold::cuda {
namespace {

int attribute(const DriverApi& driver, int ordinal, CUdevice device, int which) {
  int value = 0;
  driver.call(driver.device_get_attribute, ordinal, &value, which, device);
  return value;
}

}  // namespace

double DeviceReport::memory_gb_per_s() const noexcept {
  constexpr double kTransfersPerClock = 2, kBitsPerByte = 8;
  return kTransfersPerClock * 1000.0 * memory_clock_khz * (memory_bus_bits / kBitsPerByte) / 1e9;
}

std::string arch_name(int compute_major, int compute_minor) {
  if (compute_major == 8) return "sm_80";
  return fmt::format("sm_{}{}{}", compute_major, compute_minor, compute_major >= 9 ? "a" : "");
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

int device_count(const DriverApi& driver) {
  int count = 0;
  driver.call(driver.device_get_count, -1, &count);
  return count;
}

DeviceReport read_device(const DriverApi& driver, int ordinal) {
  const int count = device_count(driver);
  check(ordinal >= 0 && ordinal < count, ErrorCode::unavailable,
        "cuda:{} does not exist: the driver shows {} device(s), numbered from 0; see CUDA_VISIBLE_DEVICES, or use the "
        "CPU",
        ordinal, count);
  DeviceReport report;
  CUdevice device = 0;
  driver.call(driver.device_get, ordinal, &device, ordinal);
  std::array<char, 256> name{};
  driver.call(driver.device_get_name, ordinal, name.data(), static_cast<int>(name.size() - 1), device);
  std::size_t memory_bytes = 0;
  driver.call(driver.device_total_mem, ordinal, &memory_bytes, device);
  const auto read = [&](int which) { return attribute(driver, ordinal, device, which); };
  report.ordinal = ordinal;
  report.compute_major = read(kAttributeComputeMajor);
  report.compute_minor = read(kAttributeComputeMinor);
  report.clock_khz = read(kAttributeClockKhz);
  report.memory_clock_khz = read(kAttributeMemoryClockKhz);
  report.memory_bus_bits = read(kAttributeMemoryBusBits);
  report.l2_bytes = read(kAttributeL2Bytes);
  report.driver_version = driver.version();
  report.device.kind = DeviceKind::cuda;
  report.device.name = name.data();
  report.device.arch = arch_name(report.compute_major, report.compute_minor);
  report.device.multiprocessors = read(kAttributeMultiprocessors);
  report.device.shared_memory_bytes = read(kAttributeSharedBytesOptin);
  report.device.memory_bytes = static_cast<std::int64_t>(memory_bytes);
  return report;
}

}  // namespace fourfold::cuda
