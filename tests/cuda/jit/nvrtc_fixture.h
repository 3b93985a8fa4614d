// Tests that need NVRTC are skipped with the reason where there is none.
#pragma once

#include <algorithm>
#include <memory>

#include "cuda/jit/nvrtc_api.h"
#include "jit_fixture.h"

namespace fourfold::cuda {

struct NvrtcTest : testing::Test {
  std::shared_ptr<const NvrtcApi> nvrtc;
  void SetUp() override {
    try {
      nvrtc = NvrtcApi::open();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace fourfold::cuda
