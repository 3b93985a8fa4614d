// Reading devices, from the stand-in driver's two.
#include "cuda/device.h"

#include <gtest/gtest.h>

#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

using DeviceTest = StandInTest;

TEST(Device, ArchitectureByComputeCapability) {
  EXPECT_EQ(arch_name(9, 0), "sm_90a");
  EXPECT_EQ(arch_name(10, 0), "sm_100a");
  EXPECT_EQ(arch_name(12, 0), "sm_120a");
  EXPECT_EQ(arch_name(8, 0), "sm_80");
  EXPECT_EQ(arch_name(8, 9), "sm_80");     // runs its code
  EXPECT_EQ(arch_name(10, 3), "sm_103a");  // does not run code for 10.0's own features
  EXPECT_EQ(arch_name(7, 5), "sm_75");
}

TEST(Device, VersionText) {
  EXPECT_EQ(version_text(12040), "12.4");
  EXPECT_EQ(version_text(13000), "13.0");
}

TEST_F(DeviceTest, FillsTheDescriptionThatPlanningNeeds) {
  control_.set_attribute(1, kAttributeMultiprocessors, 78);
  control_.set_attribute(1, kAttributeComputeMajor, 12);
  const DeviceReport report = read_device(*driver_, 1);
  EXPECT_EQ(report.device.kind, DeviceKind::cuda);
  EXPECT_EQ(report.device.name, "Stand-in GPU 1");
  EXPECT_EQ(report.device.arch, "sm_120a");
  EXPECT_EQ(report.device.multiprocessors, 78);
  EXPECT_EQ(report.device.shared_memory_bytes, 227 * 1024);
  EXPECT_EQ(report.device.memory_bytes, std::int64_t{64} << 30);
  EXPECT_EQ(report.ordinal, 1);
  EXPECT_EQ(report.driver_version, 13000);
  EXPECT_EQ(report.clock_khz, 1'980'000);
  // 2 * 3.201 GHz * 6144 / 8 bytes
  EXPECT_NEAR(report.memory_gb_per_s(), 4916.736, 0.001);
}

TEST_F(DeviceTest, NeedsNoContext) {
  read_device(*driver_, 0);
  EXPECT_EQ(control_.count("cuDevicePrimaryCtxRetain"), 0);
  EXPECT_EQ(control_.count("cuMemAlloc_v2"), 0);
}

TEST_F(DeviceTest, AnOrdinalThatIsNotThereIsRefusedWithTheCount) {
  for (const int ordinal : {-1, 2, 99})
    expect_error(ErrorCode::unavailable, {"cuda:" + std::to_string(ordinal), "2 device(s)", "CUDA_VISIBLE_DEVICES"},
                 [&] { read_device(*driver_, ordinal); });
}

TEST_F(DeviceTest, EveryCallThatFailsIsNamed) {
  for (const char* name :
       {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"}) {
    control_.fail(name, 0, 999);
    expect_error(ErrorCode::internal, {name, "999"}, [&] { read_device(*driver_, 0); });
  }
  EXPECT_EQ(read_device(*driver_, 0).device.arch, "sm_90a");
}

}  // namespace
}  // namespace fourfold::cuda
