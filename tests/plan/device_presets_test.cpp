// The table of known devices.
#include <gtest/gtest.h>

#include "fourfold/error.h"
#include "fourfold/plan.h"

namespace fourfold {
namespace {

TEST(DevicePresets, EveryNameGivesItsDevice) {
  const std::vector<std::string> names = device_preset_names();
  ASSERT_EQ(names.size(), 7u);
  for (const std::string& name : names) EXPECT_EQ(device_preset(name).name, name);
}

TEST(DevicePresets, CpuIsPortableWithOneThread) {
  const Device cpu = device_preset("cpu");
  EXPECT_EQ(cpu.kind, DeviceKind::cpu);
  EXPECT_EQ(cpu.isa, CpuIsa::portable);
  EXPECT_EQ(cpu.threads, 1);
}

TEST(DevicePresets, H200IsAsPublished) {
  const Device device = device_preset("h200");
  EXPECT_EQ(device.kind, DeviceKind::cuda);
  EXPECT_EQ(device.arch, "sm_90a");
  EXPECT_EQ(device.multiprocessors, 132);
  EXPECT_EQ(device.shared_memory_bytes, 232448);
  EXPECT_EQ(device.memory_bytes, 141'000'000'000);
}

TEST(DevicePresets, EveryGpuIsDescribedWhole) {
  for (const std::string& name : device_preset_names()) {
    if (name == "cpu") continue;
    const Device device = device_preset(name);
    EXPECT_TRUE(device.arch.starts_with("sm_")) << name;
    EXPECT_GT(device.multiprocessors, 100) << name;
    EXPECT_GE(device.shared_memory_bytes, 99 * 1024) << name;
    EXPECT_GE(device.memory_bytes, 32'000'000'000) << name;
  }
}

TEST(DevicePresets, UnknownNamesAreRefusedWithTheList) {
  for (const char* name : {"", "H200", "h200 ", "gpu"}) {
    try {
      device_preset(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find("cpu, a100, h100, h200, b200, rtx-pro-6000, rtx-5090"),
                std::string::npos);
    }
  }
}

}  // namespace
}  // namespace fourfold
