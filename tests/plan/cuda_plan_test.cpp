// What every CUDA plan has in common: refusals, and that the corpus is served.
#include "plan/cuda_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "corpus/corpus.h"

namespace fourfold {
namespace {

Caps caps_of(std::string_view problem) { return parse_problem(problem).caps; }

TEST(CudaPlan, RefusesWhatNoGpuServes) {
  const Device h200 = device_preset("h200");
  Caps caps = caps_of("t1 k64 e4 h64 i32");
  caps.max_tokens = kMaxCudaRoutes / 64;
  EXPECT_TRUE(can_implement(caps, h200).ok);
  ++caps.max_tokens;
  EXPECT_NE(can_implement(caps, h200).reason.find("use 33554431"), std::string::npos)
      << can_implement(caps, h200).reason;
  EXPECT_TRUE(can_implement(caps, device_preset("cpu")).ok);
  Device other = h200;
  other.arch = "sm_75";
  const Support support = can_implement(caps_of("t1 k1 e4 h64 i32"), other);
  EXPECT_NE(support.reason.find("device.arch = \"sm_75\""), std::string::npos) << support.reason;
  EXPECT_NE(support.reason.find("sm_80, sm_90a, sm_100a, sm_120a"), std::string::npos) << support.reason;
}

TEST(Corpus, EveryProblemIsServedOnceAndEverywhere) {
  const std::vector<std::string> problems = support::corpus_problems();
  EXPECT_GT(problems.size(), 100u);
  EXPECT_EQ(std::set<std::string>(problems.begin(), problems.end()).size(), problems.size());
  for (const std::string& problem : problems)
    for (const std::string& device : device_preset_names()) {
      const Support support = can_implement(caps_of(problem), device_preset(device));
      EXPECT_TRUE(support.ok) << problem << " on " << device << ": " << support.reason;
    }
}

}  // namespace
}  // namespace fourfold
