// What a call could not go below: the bytes of the experts it hits, and limits measured on known devices.
#include <algorithm>
#include <array>

#include "fourfold/benchmark.h"

namespace fourfold {
namespace {

struct KnownDevice {
  std::string_view name;  // part of what the driver calls it
  FloorLimits limits;
};
// Device copy 4.27 and pure reads 4.4 TB/s; dense bf16 products of 8192 x 8192 x 8192 789 TFLOP/s: 4.3 and 794 are the
// numbers that published ratios for this card are made with.
constexpr std::array<KnownDevice, 1> kKnownDevices{{{"H200", {4.3e12, 794e12}}}};

}  // namespace

double expert_weight_bytes(const Caps& caps) noexcept {
  const auto matrix = [&](std::int64_t rows, std::int64_t k) {
    const double groups = static_cast<double>(groups_per_row(caps.format, k));
    const double scale_bytes = caps.format.format == WeightFormat::int4 ? 2 : 1;
    const double zero_bytes = caps.format.zero_points ? 0.5 : 0;
    return static_cast<double>(rows) * (static_cast<double>(k) / 2 + groups * (scale_bytes + zero_bytes));
  };
  return matrix(caps.gate_up_rows(), caps.hidden) + matrix(caps.hidden, caps.intermediate);
}

FloorLimits floor_limits(std::string_view device_name) noexcept {
  const auto known = std::find_if(kKnownDevices.begin(), kKnownDevices.end(), [&](const KnownDevice& device) {
    return device_name.find(device.name) != std::string_view::npos;
  });
  return known == kKnownDevices.end() ? FloorLimits{} : known->limits;
}

}  // namespace fourfold
