// required_workspace_bytes: the size query is exact, monotone, quick, and safe to ask from many threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "corpus/corpus.h"
#include "cuda_plan_rules.h"
#include "fourfold/error.h"
#include "fourfold/plan.h"

namespace fourfold {
namespace {

Device random_gpu(std::mt19937_64& random) {
  const char* names[] = {"a100", "h100", "h200", "b200", "rtx-pro-6000", "rtx-5090"};
  return device_preset(names[random() % std::size(names)]);
}

struct Asked {
  Caps caps;
  Device device;
};

Asked random_gpu_question(std::mt19937_64& random) {
  const Device device = random_gpu(random);
  return {servable_by_gpu(random_caps(random), device), device};
}

/// One problem in two for a GPU, the others for a CPU.
Asked random_question(std::mt19937_64& random) {
  if (random() % 2) return random_gpu_question(random);
  return {random_caps(random), random_cpu(random)};
}

TEST(WorkspaceQuery, EqualsThePlanForTenThousandRandomCapsOfACpu) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 10000; ++round) {
    const Caps caps = random_caps(random);
    const Device device = random_cpu(random);
    ASSERT_EQ(required_workspace_bytes(caps, device), plan(caps, device).workspace_bytes()) << "round " << round;
  }
}

TEST(WorkspaceQuery, EqualsThePlanForTenThousandRandomCapsOfAGpu) {
  std::mt19937_64 random(16);
  int one_band = 0, more_bands = 0, naive = 0;
  for (int round = 0; round < 10000; ++round) {
    auto [caps, device] = random_gpu_question(random);
    device.naive_kernels = random() % 8 == 0;
    const Plan planned = plan(caps, device);
    ASSERT_EQ(required_workspace_bytes(caps, device), planned.workspace_bytes()) << "round " << round;
    ++(planned.bands().size() > 1 ? more_bands : one_band);
    naive += device.naive_kernels ? 1 : 0;
  }
  EXPECT_GT(one_band, 1000);
  EXPECT_GT(more_bands, 1000);
  EXPECT_GT(naive, 1000);
}

// What is refused is refused by both, with the same words.
TEST(WorkspaceQuery, RefusesWhatThePlanRefuses) {
  std::mt19937_64 random(17);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    Caps caps = random_caps(random);
    const Device device = random_gpu(random);
    const Support support = can_implement(caps, device);
    if (support) continue;
    ++refused;
    for (const bool whole : {false, true}) {
      try {
        whole ? plan(caps, device).workspace_bytes() : required_workspace_bytes(caps, device);
        ADD_FAILURE() << "round " << round << " is not refused";
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::unsupported);
        ASSERT_EQ(error.what(), support.reason);
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(WorkspaceQuery, GrowsWithMaxTokens) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 10000; ++round) {
    auto [caps, device] = random_question(random);
    const std::uint64_t large = required_workspace_bytes(caps, device);
    const std::int64_t tokens = caps.max_tokens;
    caps.max_tokens = round % 2 ? log_uniform(random, 0, tokens) : std::max<std::int64_t>(0, tokens - 1);
    ASSERT_LE(required_workspace_bytes(caps, device), large)
        << "round " << round << " on " << device.name << ": " << problem_text({caps, {caps.max_tokens}, {}})
        << " against t" << tokens;
  }
}

// The best of some passes, because a machine that does other work measures that too.
TEST(WorkspaceQuery, TakesLessThan50Microseconds) {
  constexpr int kCalls = 200, kPasses = 25;
  std::vector<std::string> problems = support::corpus_problems();
  problems.push_back("t100000 k8 e4096 h1048576 i2048");  // 2731 panels of output columns
  for (const std::string& problem : problems) {
    const Caps caps = parse_problem(problem).caps;
    for (const char* name : {"cpu", "h200", "rtx-pro-6000"}) {
      const Device device = device_preset(name);
      if (!can_implement(caps, device)) continue;
      double best_us = 1e9;
      std::uint64_t sum = 0;
      for (int pass = 0; pass < kPasses && best_us >= 50; ++pass) {
        const auto begin = std::chrono::steady_clock::now();
        for (int call = 0; call < kCalls; ++call) sum += required_workspace_bytes(caps, device);
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        best_us = std::min(best_us, spent.count() / kCalls);
      }
      EXPECT_GT(sum, 0u);
      EXPECT_LT(best_us, 50) << problem << " on " << name;
    }
  }
}

TEST(WorkspaceQuery, GivesTheSameNumbersOnManyThreads) {
  std::mt19937_64 random(13);
  std::vector<Asked> questions;
  std::vector<std::uint64_t> expected;
  for (int i = 0; i < 500; ++i) {
    questions.push_back(random_question(random));
    expected.push_back(required_workspace_bytes(questions.back().caps, questions.back().device));
  }
  constexpr int kThreads = 8;
  std::vector<std::vector<std::uint64_t>> found(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (const Asked& asked : questions) found[thread].push_back(required_workspace_bytes(asked.caps, asked.device));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& numbers : found) EXPECT_EQ(numbers, expected);
}

/// Every kernel that some count up to the capacity can launch.
std::set<std::string> kernels_of_every_count(const Plan& planned) {
  std::set<std::string> kernels;
  for (std::int64_t tokens = 1; tokens <= planned.caps().max_tokens; ++tokens)
    for (const std::string& kernel : planned.band_for(tokens).kernels) kernels.insert(kernel);
  return kernels;
}

// Local and global experts; few tokens (direct kernels on a CPU) and many (sorted ones).
TEST(ReachableSet, IsWhatEveryCountUpToTheCapacityLaunches) {
  std::mt19937_64 random(14);
  int local = 0, global = 0, one_band = 0, more_bands = 0;
  for (int round = 0; round < 300; ++round) {
    auto [caps, device] = random_question(random);
    caps.max_tokens = log_uniform(random, 1, 3000);
    const Plan planned = plan(caps, device);
    const std::vector<std::string> listed = planned.kernels();
    ASSERT_EQ(kernels_of_every_count(planned), std::set<std::string>(listed.begin(), listed.end()))
        << problem_text({caps, {caps.max_tokens}, {}}) << " on " << device.name;
    ++(caps.global_experts > 0 ? global : local);
    ++(planned.bands().size() > 1 ? more_bands : one_band);
  }
  EXPECT_GT(local, 50);
  EXPECT_GT(global, 50);
  EXPECT_GT(one_band, 10);
  EXPECT_GT(more_bands, 10);
}

// Of a CPU, whose bands begin where they begin whatever the capacity; a GPU's tiles may be larger in a small plan.
TEST(ReachableSet, ALargerCapacityOfACpuReachesNoLess) {
  std::mt19937_64 random(15);
  for (int round = 0; round < 300; ++round) {
    Caps caps = random_caps(random);
    const Device device = random_cpu(random);
    caps.max_tokens = log_uniform(random, 1, 3000);
    const std::vector<std::string> few = plan(caps, device).kernels();
    caps.max_tokens *= 4;
    const std::vector<std::string> many = plan(caps, device).kernels();
    for (const std::string& kernel : few) ASSERT_NE(std::find(many.begin(), many.end(), kernel), many.end()) << kernel;
  }
}

}  // namespace
}  // namespace fourfold
