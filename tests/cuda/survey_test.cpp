// What the public header says of GPUs: from the stand-in's two, from a driver that refuses, and without a driver.
#include "cuda/survey.h"

#include <gtest/gtest.h>

#include "cuda/device.h"
#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

using SurveyTest = StandInTest;

TEST_F(SurveyTest, HasEveryGpuInPublicUnits) {
  control_.set_attribute(1, kAttributeComputeMajor, 12);
  control_.set_attribute(1, kAttributeMultiprocessors, 78);
  const GpuSurvey found = survey({driver_, ""});
  EXPECT_EQ(found.reason, "");
  EXPECT_EQ(found.driver_version, "13.0");
  EXPECT_EQ(found.driver_path, FOURFOLD_STAND_IN_CUDA);
  ASSERT_EQ(found.gpus.size(), 2u);
  for (int ordinal = 0; ordinal < 2; ++ordinal) {
    const Gpu& gpu = found.gpus[static_cast<std::size_t>(ordinal)];
    const DeviceReport report = read_device(*driver_, ordinal);
    EXPECT_EQ(gpu.ordinal, ordinal);
    EXPECT_EQ(gpu.device.kind, DeviceKind::cuda);
    EXPECT_EQ(gpu.device.name, report.device.name);
    EXPECT_EQ(gpu.device.memory_bytes, report.device.memory_bytes);
    EXPECT_EQ(gpu.l2_bytes, report.l2_bytes);
    EXPECT_EQ(gpu.memory_bus_bits, report.memory_bus_bits);
    EXPECT_EQ(gpu.clock_mhz, 1980);
    EXPECT_EQ(gpu.memory_clock_mhz, 3201);
    EXPECT_NEAR(gpu.memory_gb_per_s, 4916.736, 0.001);
  }
  EXPECT_EQ(found.gpus[0].device.arch, "sm_90a");
  EXPECT_EQ(found.gpus[0].compute_capability, "9.0");
  EXPECT_EQ(found.gpus[1].device.arch, "sm_120a");
  EXPECT_EQ(found.gpus[1].compute_capability, "12.0");
  EXPECT_EQ(found.gpus[1].device.multiprocessors, 78);
}

TEST_F(SurveyTest, MakesNoContext) {
  survey({driver_, ""});
  EXPECT_EQ(control_.count("cuDevicePrimaryCtxRetain"), 0);
  EXPECT_EQ(control_.count("cuMemAlloc_v2"), 0);
}

TEST_F(SurveyTest, ADriverWithoutAGpuSaysSo) {
  control_.set_device_count(0);
  const GpuSurvey found = survey({driver_, ""});
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_EQ(found.driver_version, "13.0");
  EXPECT_NE(found.reason.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << found.reason;
}

TEST_F(SurveyTest, CallsThatFailForEveryGpuAreTheReason) {
  control_.fail("cuDeviceGetName", 0, 999);
  control_.fail("cuDeviceGetName", 0, 999);
  const GpuSurvey found = survey({driver_, ""});
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_NE(found.reason.find("cuDeviceGetName"), std::string::npos) << found.reason;
}

TEST_F(SurveyTest, ACountThatFailsIsTheReason) {
  control_.fail("cuDeviceGetCount", 0, 999);
  const GpuSurvey found = survey({driver_, ""});
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_NE(found.reason.find("cuDeviceGetCount"), std::string::npos) << found.reason;
}

TEST_F(SurveyTest, ABrokenGpuDoesNotHideTheOthers) {
  for (const int broken : {0, 1}) {
    control_.fail("cuDeviceTotalMem_v2", broken, 999);
    const GpuSurvey found = survey({driver_, ""});
    EXPECT_EQ(found.reason, "");
    ASSERT_EQ(found.gpus.size(), 1u);
    EXPECT_EQ(found.gpus[0].ordinal, 1 - broken);
  }
}

TEST(Survey, WithoutADriverThereIsOnlyAReason) {
  const GpuSurvey found = survey(try_open_driver("libno-such-driver.so"));
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_EQ(found.driver_version, "");
  EXPECT_EQ(found.driver_path, "");
  EXPECT_NE(found.reason.find("libno-such-driver.so"), std::string::npos) << found.reason;
}

TEST(Survey, OfThisMachineHasGpusOrTheDriversReason) {
  const DriverOpening opening = try_open_driver();
  const GpuSurvey found = survey_gpus();
  EXPECT_NE(found.gpus.empty(), found.reason.empty()) << found.reason;
  EXPECT_EQ(found.driver_path.empty(), opening.driver == nullptr);
  if (opening.driver == nullptr) {
    EXPECT_EQ(found.reason, opening.reason);
  }
}

TEST(Survey, EveryGpuOfThisMachineCanBePlannedFor) {
  const GpuSurvey found = survey_gpus();
  if (found.gpus.empty()) GTEST_SKIP() << found.reason;
  for (const Gpu& gpu : found.gpus) {
    EXPECT_EQ(gpu.device.kind, DeviceKind::cuda);
    EXPECT_TRUE(gpu.device.arch.starts_with("sm_")) << gpu.device.arch;
    EXPECT_GT(gpu.device.memory_bytes, 0);
    EXPECT_EQ(cuda_device(gpu.ordinal).name, gpu.device.name);
  }
}

TEST(CudaDevice, OneThatIsNotThereIsUnavailable) {
  expect_error(ErrorCode::unavailable, {}, [] { cuda_device(1000); });
}

}  // namespace
}  // namespace fourfold::cuda
