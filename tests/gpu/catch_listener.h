// A run whose kernels have a planted fault: whether a test saw it, and which.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "gpu/gpu_report.h"

namespace fourfold::gpu_test {

/// Whether a failure is one of numbers, bytes or guard areas, or of the device itself. A fault that does not compile,
/// a missing compiler and too little memory are exceptions too and prove nothing. Pure.
inline bool failure_sees_fault(std::string_view message) {
  if (message.find("C++ exception") == std::string_view::npos) return true;
  for (const char* error : {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED"})
    if (message.find(error) != std::string_view::npos) return true;
  return false;
}

class CatchListener : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    test_ = std::string(info.test_suite_name()) + "." + info.name();
  }
  /// GoogleTest holds its lock here: asking it for the current test would wait for ever.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const std::string text = test_ + ": " + std::string(result.message()).substr(0, 500);
    std::string& first = failure_sees_fault(result.message()) ? seen_ : other_;
    if (first.empty()) first = text;
  }

  /// One check: passed with what saw the fault, or failed with what happened instead.
  CheckResult result(bool planted, double seconds) const {
    CheckResult check;
    check.run = 1;
    check.seconds = seconds;
    check.failed = seen_.empty() || !planted;
    if (!planted)
      check.reasons.push_back("no kernel with the fault was compiled");
    else if (!seen_.empty())
      check.reasons.push_back("caught by " + seen_);
    else
      check.reasons.push_back(other_.empty() ? "no test saw the fault" : "no test saw the fault, but: " + other_);
    return check;
  }

 private:
  std::string test_ = "no test", seen_, other_;
};

}  // namespace fourfold::gpu_test
