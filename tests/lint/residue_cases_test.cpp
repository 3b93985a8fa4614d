// What the lists of the GPU tests cover, proved where there is no GPU.
#include "gpu/residue_cases.h"

#include <gtest/gtest.h>

#include <set>

#include "fourfold/plan.h"
#include "support/moe_layer.h"

namespace fourfold::lint {
namespace {

using gpu_test::ResidueCase;

/// Pairs of levels of factors `a` and `b` that meet in `cases`.
std::size_t pairs_met(const std::vector<ResidueCase>& cases, std::size_t a, std::size_t b) {
  std::set<std::pair<int, int>> met;
  for (const ResidueCase& one : cases) met.insert({one.levels[a], one.levels[b]});
  return met.size();
}

TEST(ResidueCases, ThePairwiseSetHasEveryPairInAtMost150Cases) {
  const std::vector<ResidueCase> cases = gpu_test::pairwise_cases();
  EXPECT_LE(cases.size(), 150u);
  const auto& factors = gpu_test::residue_factors();
  ASSERT_GE(factors.size(), 4u);
  for (std::size_t a = 0; a < factors.size(); ++a)
    for (std::size_t b = a + 1; b < factors.size(); ++b)
      EXPECT_EQ(pairs_met(cases, a, b), factors[a].levels.size() * factors[b].levels.size())
          << factors[a].name << " and " << factors[b].name;
}

TEST(ResidueCases, TheMatrixHasEverySizeWithEveryCountAndFormat) {
  const std::vector<ResidueCase> cases = gpu_test::residue_matrix();
  std::set<std::vector<int>> met;
  for (const ResidueCase& one : cases) met.insert({one.levels[0], one.levels[1], one.levels[2]});
  EXPECT_EQ(met.size(), 12u * 8u * 7u);
  EXPECT_EQ(cases.size(), met.size());
  const auto& factors = gpu_test::residue_factors();
  for (std::size_t a = 0; a < factors.size(); ++a)
    for (std::size_t b = a + 1; b < factors.size(); ++b)
      EXPECT_EQ(pairs_met(cases, a, b), factors[a].levels.size() * factors[b].levels.size())
          << factors[a].name << " and " << factors[b].name;
}

// The text of a case is the problem that its levels say, and an H200 serves it.
TEST(ResidueCases, EveryCaseIsAProblemOfItsLevels) {
  for (const auto& cases : {gpu_test::residue_matrix(), gpu_test::pairwise_cases()})
    for (const ResidueCase& one : cases) {
      const Caps caps = support::caps_of(one.problem);
      EXPECT_EQ(caps.intermediate, gpu_test::kResidueIntermediates[one.levels[0]]) << one.problem;
      EXPECT_EQ(caps.max_tokens, gpu_test::kResidueTokens[one.levels[1]]) << one.problem;
      const Support answer = can_implement(caps, device_preset("h200"));
      EXPECT_TRUE(answer.ok) << one.problem << ": " << answer.reason;
    }
}

// Both ways of the second projection are in the set.
TEST(ResidueCases, TheSetReachesBothDownKernels) {
  std::set<std::string> kernels;
  for (const ResidueCase& one : gpu_test::pairwise_cases()) {
    const Caps caps = support::caps_of(one.problem);
    const Plan planned = plan(caps, device_preset("h200"));
    for (const std::string& kernel : planned.band_for(caps.max_tokens).kernels)
      kernels.insert(kernel.substr(0, kernel.find('<')));
  }
  for (const char* kernel : {"route_tiles", "gate_up_tiles", "down_sums", "down_rows", "combine_rows"})
    EXPECT_TRUE(kernels.contains(kernel)) << kernel;
}

}  // namespace
}  // namespace fourfold::lint
