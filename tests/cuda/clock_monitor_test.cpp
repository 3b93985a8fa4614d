// Clocks from a management library, and from none.
#include "cuda/clock_monitor.h"

#include <gtest/gtest.h>

#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

class ClockMonitorTest : public StandInTest {};

TEST_F(ClockMonitorTest, ReadsTheDeviceOfTheContext) {
  const ContextRef device = context(1);
  {
    ClockMonitor monitor = ClockMonitor::open(*device, FOURFOLD_STAND_IN_CUDA);
    EXPECT_EQ(monitor.reason(), "");
    EXPECT_EQ(control_.management_sessions(), 1);
    const ClockMonitor moved = std::move(monitor);
    const auto sample = moved.sample();
    ASSERT_TRUE(sample.has_value());
    EXPECT_EQ(sample->sm_mhz, 1935u);
    EXPECT_EQ(sample->power_w, 612.5);
    EXPECT_EQ(throttle_reasons(sample->throttle_bits), std::vector<std::string>{"power cap"});
  }
  EXPECT_EQ(control_.management_sessions(), 0);
}

TEST_F(ClockMonitorTest, WithoutALibraryThereIsAReasonAndNoSample) {
  const ContextRef device = context();
  const ClockMonitor monitor = ClockMonitor::open(*device, "libfourfold-none.so");
  EXPECT_NE(monitor.reason().find("libfourfold-none.so"), std::string::npos) << monitor.reason();
  EXPECT_FALSE(monitor.sample().has_value());
}

TEST_F(ClockMonitorTest, WithoutAnAddressThereIsAReason) {
  const ContextRef device = context();
  control_.fail("cuDeviceGetPCIBusId", 0, kInvalidValue);
  const ClockMonitor monitor = ClockMonitor::open(*device, FOURFOLD_STAND_IN_CUDA);
  EXPECT_NE(monitor.reason().find("PCI"), std::string::npos) << monitor.reason();
  EXPECT_EQ(control_.management_sessions(), 0);
}

TEST(ThrottleReasons, SettingsAreNone) {
  EXPECT_TRUE(throttle_reasons(0).empty());
  EXPECT_TRUE(throttle_reasons(0x1 | 0x2 | 0x100).empty());
  EXPECT_EQ(throttle_reasons(0x4 | 0x40), (std::vector<std::string>{"power cap", "thermal (hardware)"}));
}

}  // namespace
}  // namespace fourfold::cuda
