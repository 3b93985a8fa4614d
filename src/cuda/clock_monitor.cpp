// Opens the management library at run time, finds the device by PCI address, reads clocks.
#include "cuda/clock_monitor.h"

#include <array>
#include <utility>

#include "core/check.h"

namespace fourfold::cuda {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr int kClockSm = 1;  // NVML_CLOCK_SM

struct ThrottleBit {
  std::uint64_t bit;
  const char* text;
};
// nvmlClocksThrottleReason*; idle (0x1), application clocks (0x2) and display clocks (0x100) are settings, not limits.
constexpr std::array<ThrottleBit, 6> kThrottleBits{{{0x4, "power cap"},
                                                    {0x8, "hardware slowdown"},
                                                    {0x10, "sync boost"},
                                                    {0x20, "thermal (driver)"},
                                                    {0x40, "thermal (hardware)"},
                                                    {0x80, "power brake"}}};

}  // namespace

std::vector<std::string> throttle_reasons(std::uint64_t bits) {
  std::vector<std::string> reasons;
  for (const ThrottleBit& known : kThrottleBits)
    if ((bits & known.bit) != 0) reasons.emplace_back(known.text);
  return reasons;
}

ClockMonitor ClockMonitor::open(const Context& context, const std::string& library) {
  ClockMonitor monitor;
  const auto absent = [&](std::string reason) {
    ClockMonitor none;
    none.reason_ = std::move(reason);
    return none;
  };
  const DriverApi& driver = context.driver();
  if (driver.device_get_pci_bus_id.function == nullptr) return absent("the driver has no cuDeviceGetPCIBusId");
  std::array<char, 32> address{};
  if (driver.device_get_pci_bus_id.function(address.data(), static_cast<int>(address.size() - 1), context.device()) !=
      kSuccess)
    return absent("the driver does not say the device's PCI address");
  try {
    monitor.library_ = DynamicLibrary::open(std::array{library});
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(monitor.library_.symbol(name));
    };
    load(monitor.calls_.shutdown, "nvmlShutdown");
    load(monitor.calls_.handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
    load(monitor.calls_.clock_info, "nvmlDeviceGetClockInfo");
    load(monitor.calls_.throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    load(monitor.calls_.init, "nvmlInit_v2");
  } catch (const Error& error) {
    return absent(error.what());
  }
  monitor.calls_.power =
      reinterpret_cast<decltype(Calls::power)>(monitor.library_.find_symbol("nvmlDeviceGetPowerUsage"));
  if (const Result result = monitor.calls_.init(); result != kNvmlSuccess)
    return absent(fmt::format("nvmlInit_v2 failed with {}", result));
  if (const Result result = monitor.calls_.handle_by_pci(address.data(), &monitor.device_); result != kNvmlSuccess) {
    monitor.calls_.shutdown();
    return absent(fmt::format("nvmlDeviceGetHandleByPciBusId_v2({}) failed with {}", address.data(), result));
  }
  monitor.reason_.clear();
  return monitor;
}

ClockMonitor::~ClockMonitor() {
  if (device_ != nullptr) calls_.shutdown();
}

ClockMonitor::ClockMonitor(ClockMonitor&& other) noexcept { *this = std::move(other); }

ClockMonitor& ClockMonitor::operator=(ClockMonitor&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(calls_, other.calls_);
  std::swap(device_, other.device_);
  std::swap(reason_, other.reason_);
  return *this;
}

std::optional<ClockSample> ClockMonitor::sample() const {
  if (device_ == nullptr) return std::nullopt;
  ClockSample sample;
  unsigned int mhz = 0, milliwatts = 0;
  unsigned long long bits = 0;
  if (calls_.clock_info(device_, kClockSm, &mhz) != kNvmlSuccess || calls_.throttle(device_, &bits) != kNvmlSuccess)
    return std::nullopt;
  sample.sm_mhz = mhz;
  sample.throttle_bits = bits;
  if (calls_.power != nullptr && calls_.power(device_, &milliwatts) == kNvmlSuccess) sample.power_w = milliwatts / 1e3;
  return sample;
}

}  // namespace fourfold::cuda
