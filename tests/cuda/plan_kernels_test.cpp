// From plans to launchable kernels: resolved once, told apart, shared, and one second chance for a cached image.
#include "cuda/plan_kernels.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <new>
#include <thread>

#include "cuda_backend_fixture.h"
#include "plan/cuda_naive_plan.h"

namespace fourfold::cuda {
namespace {

using PlanRef = std::shared_ptr<const PlanData>;

class PlanKernelsTest : public CudaBackendTest {
 protected:
  void SetUp() override {
    CudaBackendTest::SetUp();
    kernels_ = make_kernels();
    stream_ = Stream::create(context());
  }
  void TearDown() override {
    kernels_.reset();
    stream_ = {};
    CudaBackendTest::TearDown();
  }
  std::unique_ptr<PlanKernels> make_kernels() { return std::make_unique<PlanKernels>(context(), "sm_90a", options()); }
  static PlanRef plan_of(const std::string& problem) {
    Device device = device_preset("h200");
    device.naive_kernels = true;  // four kernels whatever the problem
    return fourfold::plan(support::caps_of(problem), device).data();
  }
  std::shared_ptr<const CudaBoundKernels> resolve(const PlanRef& plan) {
    return std::static_pointer_cast<const CudaBoundKernels>(kernels_->resolve(plan, stream_.value(), 1));
  }
  static std::vector<std::string> names_of(const CudaBoundKernels& kernels) {
    std::vector<std::string> names;
    for (const Kernel& kernel : kernels.kernels) names.push_back(kernel.name());
    return names;
  }
  static std::vector<std::string> names_of(const PlanData& plan) {
    std::vector<std::string> names;
    for (const KernelSpec& spec : plan.kernel_specs) names.push_back(spec.name());
    return names;
  }
  /// Puts images that no device takes into the disk cache, for every kernel of `plan`.
  void spoil_the_disk(const PlanRef& plan) {
    compiler_->bad = true;
    ImageStore store(options());
    for (const KernelSpec& spec : plan->kernel_specs) store.get(spec, "sm_90a");
    compiler_->bad = false;
    compiler_->compiles = 0;
  }

  std::unique_ptr<PlanKernels> kernels_;
  Stream stream_;
  const PlanRef plan_ = plan_of("t4 k2 e4 h64 i32 nvfp4 bf16 silu");
};

TEST_F(PlanKernelsTest, EveryStepGetsItsKernel) { EXPECT_EQ(names_of(*resolve(plan_)), names_of(*plan_)); }

TEST_F(PlanKernelsTest, WarmUpAndResolveGiveOneObject) {
  kernels_->warm_up(plan_);
  const auto first = resolve(plan_), second = resolve(plan_);
  EXPECT_EQ(first, second);
  kernels_->warm_up(plan_);
  const KernelCounters counters = kernels_->counters();
  EXPECT_EQ(counters.loaded, 4u);
  EXPECT_EQ(counters.from_memory, 12u);
}

TEST_F(PlanKernelsTest, PlansShareWhatTheyHaveInCommon) {
  const PlanRef other = plan_of("t4 k2 e4 h64 i32 nvfp4 bf16 gelu_tanh");  // another gate_up
  const auto first = resolve(plan_), second = resolve(other);
  EXPECT_EQ(kernels_->counters().loaded, 5u);
  EXPECT_EQ(kernels_->counters().from_memory, 3u);
  for (const CudaNaiveStep step : {kCudaRouteResolve, kCudaRouteSort, kCudaDown})
    EXPECT_EQ(first->kernels[step].function(), second->kernels[step].function());
  EXPECT_NE(first->kernels[kCudaGateUp].function(), second->kernels[kCudaGateUp].function());
}

TEST_F(PlanKernelsTest, APlanOfLoadedKernelsIsServedUnderCapture) {
  kernels_->warm_up(plan_);
  const PlanRef same_kernels = plan_of("t64 k1 e8 h128 i64 nvfp4 bf16 silu");
  ScopedCapture capture(context(), stream_.value(), CaptureMode::global);
  const std::uint64_t begin = control_.call_count();
  EXPECT_EQ(names_of(*resolve(same_kernels)), names_of(*plan_));
  EXPECT_EQ(control_.call_count(), begin);
  EXPECT_EQ(capture.end().node_count(), 0u);
}

TEST_F(PlanKernelsTest, APlanAtTheAddressOfADestroyedOneGetsItsOwn) {
  alignas(PlanData) std::array<std::byte, sizeof(PlanData)> place;
  const auto plan_there = [&](const PlanRef& value) {
    return PlanRef(new (place.data()) PlanData(*value), [](const PlanData* plan) { plan->~PlanData(); });
  };
  PlanRef plan = plan_there(plan_);
  const PlanData* address = plan.get();
  EXPECT_EQ(names_of(*resolve(plan)), names_of(*plan_));
  plan.reset();
  const PlanRef other = plan_of("t4 k2 e4 h64 i32 mxfp4 f16 relu2");
  plan = plan_there(other);
  ASSERT_EQ(plan.get(), address);
  EXPECT_EQ(names_of(*resolve(plan)), names_of(*other));
  EXPECT_EQ(names_of(*resolve(plan)), names_of(*other));  // now known
}

TEST_F(PlanKernelsTest, AnEmptyPlanNeedsNoKernel) {
  kernels_->warm_up(plan_of("t0 k2 e4 h64 i32 nvfp4 bf16 silu"));
  EXPECT_EQ(kernels_->counters().loaded, 0u);
}

TEST_F(PlanKernelsTest, ThreadsThatComeTogetherLoadEachKernelOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { right += names_of(*resolve(plan_)) == names_of(*plan_); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(compiler_->compiles, 4);
  EXPECT_EQ(control_.count("cuModuleLoadData"), 4);
  const KernelCounters counters = kernels_->counters();
  EXPECT_EQ(counters.loaded + counters.from_memory, 32u);
}

TEST_F(PlanKernelsTest, AFailureKeepsWhatWasLoadedAndTheNextTryGoesOn) {
  control_.fail("cuModuleLoadData", 2, kOutOfMemory);
  expect_error(ErrorCode::unavailable, {"gate_up_naive", "cuModuleLoadData"}, [&] { kernels_->warm_up(plan_); });
  EXPECT_EQ(kernels_->counters().loaded, 2u);
  kernels_->warm_up(plan_);
  EXPECT_EQ(kernels_->counters().loaded, 4u);
  EXPECT_EQ(compiler_->compiles, 4);
}

TEST_F(PlanKernelsTest, AnImageOfTheDiskThatTheDeviceRefusesIsDroppedCompiledAgainAndReportedOnce) {
  kernels_->warm_up(plan_);
  compiler_->compiles = 0;
  kernels_ = make_kernels();
  control_.fail("cuModuleLoadData", 1, kInvalidImage);
  EXPECT_EQ(names_of(*resolve(plan_)), names_of(*plan_));
  EXPECT_EQ(compiler_->compiles, 1);
  ASSERT_EQ(reports_.texts().size(), 1u);
  for (const char* part : {"route_sort", "disk cache is dropped", "CUDA_ERROR_INVALID_IMAGE"})
    EXPECT_NE(reports_.texts()[0].find(part), std::string::npos) << reports_.texts()[0];
  const KernelCounters counters = kernels_->counters();
  EXPECT_EQ(counters.from_disk, 4u);
  EXPECT_EQ(counters.compiled, 1u);
  EXPECT_EQ(counters.loaded, 4u);
}

TEST_F(PlanKernelsTest, WhatReplacedARefusedImageIsOnDiskForTheNext) {
  spoil_the_disk(plan_);
  kernels_->warm_up(plan_);
  EXPECT_EQ(compiler_->compiles, 4);
  kernels_ = make_kernels();
  kernels_->warm_up(plan_);
  EXPECT_EQ(compiler_->compiles, 4);
  EXPECT_EQ(reports_.texts().size(), 4u);
}

TEST_F(PlanKernelsTest, ThreadsThatMeetARefusedImageTogetherAllGetItsSuccessor) {
  for (int round = 0; round < 10; ++round) {
    fs::remove_all(cache_folder());
    spoil_the_disk(plan_);
    kernels_ = make_kernels();
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        try {
          right += names_of(*resolve(plan_)) == names_of(*plan_);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 8);
    EXPECT_EQ(compiler_->compiles, 4);
  }
  EXPECT_EQ(reports_.texts().size(), 40u);
}

TEST_F(PlanKernelsTest, ACompiledImageThatTheDeviceRefusesIsAnErrorNotALoop) {
  compiler_->bad = true;
  for (int round = 0; round < 2; ++round) {
    expect_error(ErrorCode::internal, {"route_resolve", "sm_90a", "CUDA_ERROR_INVALID_IMAGE", "would not help"},
                 [&] { kernels_->warm_up(plan_); });
    EXPECT_EQ(compiler_->compiles, 1);
    EXPECT_EQ(control_.count("cuModuleLoadData"), 1 + round);
  }
  EXPECT_EQ(control_.live("module"), 0);
  EXPECT_TRUE(reports_.texts().empty());
}

TEST_F(PlanKernelsTest, AnImageRefusedAgainAfterItsCompileIsAnError) {
  spoil_the_disk(plan_);
  compiler_->bad = true;
  expect_error(ErrorCode::internal, {"kernel route_resolve", "CUDA_ERROR_INVALID_IMAGE"},
               [&] { kernels_->warm_up(plan_); });
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_EQ(reports_.texts().size(), 1u);
}

TEST_F(PlanKernelsTest, OtherFailuresOfLoadingLeaveTheDiskAlone) {
  kernels_->warm_up(plan_);
  compiler_->compiles = 0;
  constexpr CUresult kIllegalAddress = 700;  // of an earlier kernel; every later call returns it
  for (const CUresult result : {kIllegalAddress, kOutOfMemory, 999}) {
    kernels_ = make_kernels();
    control_.fail("cuModuleLoadData", 0, result);
    EXPECT_THROW(kernels_->warm_up(plan_), Error);
    kernels_->warm_up(plan_);
  }
  EXPECT_EQ(compiler_->compiles, 0);
  EXPECT_TRUE(reports_.texts().empty());
}

TEST_F(PlanKernelsTest, CodeThatDoesNotKeepThePlansWordIsNoReasonToCompileAgain) {
  compiler_->attributes = "max_threads=64";
  expect_error(ErrorCode::internal, {"route_resolve", "128 threads", "1 .. 64"}, [&] { kernels_->warm_up(plan_); });
  kernels_ = make_kernels();  // now from the disk
  expect_error(ErrorCode::internal, {"route_resolve", "1 .. 64"}, [&] { kernels_->warm_up(plan_); });
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_TRUE(reports_.texts().empty());
}

TEST_F(PlanKernelsTest, ASecondChanceIsRefusedUnderCaptureThatBeganMeanwhile) {
  spoil_the_disk(plan_);
  // The first question finds no capture, the second one and the load do not matter, the third finds one: the retry's.
  control_.fail("cuStreamIsCapturing", 2, kStreamCaptureImplicit);
  expect_error(ErrorCode::usage, {"route_resolve", "capture is active"}, [&] { resolve(plan_); });
  EXPECT_EQ(compiler_->compiles, 0);
  EXPECT_EQ(names_of(*resolve(plan_)), names_of(*plan_));
}

TEST_F(PlanKernelsTest, KernelsOutliveTheCacheThatMadeThem) {
  auto bound = resolve(plan_);
  kernels_.reset();
  EXPECT_EQ(control_.live("module"), 4);
  bound->kernels[kCudaRouteSort].launch({}, stream_.value(), kernels::RouteSortParams{});
  bound.reset();
  EXPECT_EQ(control_.live("module"), 0);
}

}  // namespace
}  // namespace fourfold::cuda
