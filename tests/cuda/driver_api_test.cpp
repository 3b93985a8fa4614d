// Opening the driver, and what errors of its calls say.
#include "cuda/driver_api.h"

#include <gtest/gtest.h>

#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

using DriverApiTest = StandInTest;

TEST(DriverApi, AMissingDriverIsAReasonAndNoCrash) {
  const DriverOpening opening = try_open_driver("libno_such_driver.so.1");
  EXPECT_EQ(opening.driver, nullptr);
  EXPECT_NE(opening.reason.find("libno_such_driver.so.1"), std::string::npos) << opening.reason;
  EXPECT_NE(opening.reason.find("use the CPU"), std::string::npos) << opening.reason;
  expect_error(ErrorCode::unavailable, {"no CUDA driver"}, [] { DriverApi::open("libno_such_driver.so.1"); });
}

TEST(DriverApi, ALibraryWithoutTheEntryPointsIsNamed) {
  expect_error(ErrorCode::unavailable, {"libm", "has no cuInit", "newer driver"}, [] { DriverApi::open("libm.so.6"); });
}

TEST_F(DriverApiTest, NoDeviceIsUnavailable) {
  control_.reset();
  control_.set_device_count(0);
  expect_error(ErrorCode::unavailable, {"cuInit", "CUDA_ERROR_NO_DEVICE (100)", "no CUDA-capable device"},
               [] { DriverApi::open(FOURFOLD_STAND_IN_CUDA); });
}

TEST_F(DriverApiTest, AnyFailureToStartIsUnavailable) {
  for (const CUresult result : {kNotInitialized, kInvalidValue, 999}) {
    control_.reset();
    control_.fail("cuInit", 0, result);
    expect_error(ErrorCode::unavailable, {"does not start", std::to_string(result)},
                 [] { DriverApi::open(FOURFOLD_STAND_IN_CUDA); });
  }
}

TEST_F(DriverApiTest, OpensOnceAndKnowsItsVersion) {
  EXPECT_EQ(driver_->version(), 13000);
  EXPECT_EQ(control_.count("cuInit"), 1);
  EXPECT_EQ(driver_->library_path(), FOURFOLD_STAND_IN_CUDA);
}

TEST_F(DriverApiTest, EveryEntryPointIsResolved) {
  int resolved = 0;
#define FOURFOLD_EXPECT(member, symbol, ...)               \
  EXPECT_STREQ(driver_->member.name, #symbol);             \
  EXPECT_NE(driver_->member.function, nullptr) << #symbol; \
  ++resolved;
  FOURFOLD_CUDA_ENTRY_POINTS(FOURFOLD_EXPECT)
  FOURFOLD_CUDA_OPTIONAL_ENTRY_POINTS(FOURFOLD_EXPECT)
#undef FOURFOLD_EXPECT
  EXPECT_GT(resolved, 40);
}

TEST_F(DriverApiTest, AnErrorNamesTheCallTheDeviceAndTheDriversText) {
  CUdevice device = 0;
  expect_error(ErrorCode::unavailable,
               {"cuDeviceGet on cuda:7 failed", "CUDA_ERROR_INVALID_DEVICE (101)", "invalid device ordinal"},
               [&] { driver_->call(driver_->device_get, 7, &device, 7); });
}

TEST_F(DriverApiTest, AResultWithoutANameIsANumber) {
  control_.fail("cuDeviceGetCount", 0, 4242);
  int count = 0;
  expect_error(ErrorCode::internal, {"cuDeviceGetCount failed", "4242"},
               [&] { driver_->call(driver_->device_get_count, -1, &count); });
}

TEST_F(DriverApiTest, AnErrorWhoseTextFailsStillHasItsName) {
  control_.fail("cuGetErrorString", 0, kInvalidValue);
  EXPECT_EQ(driver_->result_text(kOutOfMemory), "CUDA_ERROR_OUT_OF_MEMORY (2)");
  control_.fail("cuGetErrorName", 0, kInvalidValue);
  EXPECT_NE(driver_->result_text(kOutOfMemory).find("result 2"), std::string::npos);
}

TEST(DriverApi, ResultsAreSortedByWhoCanFixThem) {
  for (const CUresult result : {kOutOfMemory, kNoDevice, kInvalidDevice, kStubLibrary, kSystemDriverMismatch})
    EXPECT_EQ(error_code(result), ErrorCode::unavailable) << result;
  for (CUresult result = kStreamCaptureUnsupported; result <= kStreamCaptureWrongThread; ++result)
    EXPECT_EQ(error_code(result), ErrorCode::usage) << result;
  for (const CUresult result : {kInvalidValue, kInvalidImage, kInvalidHandle, kIllegalState, 700, 719, 909, 999})
    EXPECT_EQ(error_code(result), ErrorCode::internal) << result;
}

}  // namespace
}  // namespace fourfold::cuda
