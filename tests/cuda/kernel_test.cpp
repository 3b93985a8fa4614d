// Launches: what is enqueued, what is refused with which words, what is counted.
#include "cuda/kernel.h"

#include <gtest/gtest.h>

#include "cuda/module_cache.h"
#include "stand_in_driver.h"

namespace fourfold::cuda {
namespace {

struct Params {
  int n = 0;
};

class KernelTest : public StandInTest {
 protected:
  KernelSpec spec_ = test_spec();
  std::unique_ptr<ModuleCache> owner_ = std::make_unique<ModuleCache>(
      [](const KernelSpec& spec) { return stand_in_image(spec.entry(), "static_shared=512"); });
  ModuleCache& cache_ = *owner_;

  KernelTest() { spec_.shared_bytes = 4096; }
  void TearDown() override {
    owner_.reset();
    StandInTest::TearDown();
  }
};

TEST_F(KernelTest, LaunchesWithTheBlockAndSharedMemoryOfItsSpec) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  const Kernel kernel = cache_.resolve(spec_, device, {stream.value(), 1});
  EXPECT_EQ(kernel.dynamic_shared_bytes(), 4096u - 512u);
  const std::uint64_t begin = control_.call_count();
  kernel.launch({3, 2, 1}, stream.value(), Params{});
  const auto calls = control_.calls(begin);
  ASSERT_EQ(calls.size(), 1u);  // the launch and nothing else
  EXPECT_STREQ(calls[0].name, "cuLaunchKernel");
  EXPECT_NE(std::string(calls[0].arguments).find("grid=3x2x1 block=128x1x1 shared=3584"), std::string::npos)
      << calls[0].arguments;
  EXPECT_EQ(cache_.counters().launches.at(0).launches, 1u);
}

TEST_F(KernelTest, ARefusedLaunchNamesKernelAndGridAndIsNotCounted) {
  const ContextRef device = context();
  const Stream stream = Stream::create(device);
  const Kernel kernel = cache_.resolve(spec_, device, {stream.value(), 1});
  expect_error(ErrorCode::internal,
               {"cuLaunchKernel on cuda:0", "scale<N=0>", "grid 0 x 1 x 1", "128 threads", "CUDA_ERROR_INVALID_VALUE"},
               [&] {
                 kernel.launch({0, 1, 1}, stream.value(), Params{});
               });
  EXPECT_EQ(cache_.counters().launches.at(0).launches, 0u);
}

TEST_F(KernelTest, AStreamOfAnotherDeviceIsRefused) {
  const ContextRef first = context(0), second = context(1);
  const Stream stream = Stream::create(second);
  const Kernel kernel = cache_.resolve(spec_, first, {stream.value(), 1});
  expect_error(ErrorCode::internal, {"cuda:0", "CUDA_ERROR_INVALID_HANDLE"},
               [&] { kernel.launch({}, stream.value(), Params{}); });
}

TEST_F(KernelTest, LaunchesWhateverDeviceIsCurrent) {
  const ContextRef first = context(0), second = context(1);
  const Stream stream = Stream::create(second);
  const Kernel kernel = cache_.resolve(spec_, second, {stream.value(), 1});
  const ContextGuard current(*first);
  kernel.launch({}, stream.value(), Params{});
  EXPECT_EQ(cache_.counters().launches.at(0).launches, 1u);
}

TEST_F(KernelTest, KeepsItsCodeLoaded) {
  const Stream stream = Stream::create(context());
  Kernel kernel;
  EXPECT_FALSE(kernel);
  {
    ModuleCache cache([](const KernelSpec& spec) { return stand_in_image(spec.entry()); });
    kernel = cache.resolve(test_spec(), stream.context(), {stream.value(), 1});
  }
  EXPECT_EQ(control_.live("module"), 1);
  kernel.launch({}, stream.value(), Params{});
  kernel = {};
  EXPECT_EQ(control_.live("module"), 0);
}

}  // namespace
}  // namespace fourfold::cuda
