// What GPUs a machine has: an answer on every machine, with a driver and without.
#include <gtest/gtest.h>

#include "cuda/driver_api.h"
#include "fourfold/error.h"
#include "fourfold/gpu.h"

namespace fourfold {
namespace {

TEST(Survey, HasGpusOrAReason) {
  const GpuSurvey survey = survey_gpus();
  EXPECT_EQ(survey.gpus.empty(), !survey.reason.empty()) << survey.reason;
}

TEST(Survey, TheReasonIsTheDrivers) {
  const cuda::DriverOpening opening = cuda::try_open_driver();
  const GpuSurvey survey = survey_gpus();
  EXPECT_EQ(survey.driver_path.empty(), opening.driver == nullptr);
  if (opening.driver == nullptr) {
    EXPECT_EQ(survey.reason, opening.reason);
  }
}

TEST(Survey, EveryGpuCanBePlannedFor) {
  const GpuSurvey survey = survey_gpus();
  if (survey.gpus.empty()) GTEST_SKIP() << survey.reason;
  for (const Gpu& gpu : survey.gpus) {
    EXPECT_EQ(gpu.device.kind, DeviceKind::cuda);
    EXPECT_TRUE(gpu.device.arch.starts_with("sm_")) << gpu.device.arch;
    EXPECT_GT(gpu.device.memory_bytes, 0);
    EXPECT_EQ(cuda_device(gpu.ordinal).name, gpu.device.name);
  }
}

TEST(CudaDevice, OneThatIsNotThereIsUnavailable) {
  try {
    cuda_device(1000);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable) << error.what();
  }
}

}  // namespace
}  // namespace fourfold
