// The catalog has every kernel that plans launch, and no other.
#include "plan/kernel_catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "corpus/corpus.h"
#include "fourfold/error.h"
#include "fourfold/kernels.h"
#include "plan/cuda_plan.h"
#include "plan/plan_data.h"
#include "random_caps.h"
#include "support/error_code.h"

namespace fourfold {
namespace {

using support::code_of;

constexpr std::size_t kMaxInstances = 250;

Device device_of(const std::string& architecture) {
  for (const std::string& name : device_preset_names())
    if (Device device = device_preset(name); device.arch == architecture) return device;
  ADD_FAILURE() << "no preset for " << architecture;
  return {};
}

std::map<std::string, KernelSpec> catalog_by_name(const std::string& architecture) {
  std::map<std::string, KernelSpec> kernels;
  for (const KernelSpec& spec : kernel_catalog(architecture)) kernels.emplace(spec.name(), spec);
  return kernels;
}

/// The same kernel, with at least as much shared memory: a plan says the most that its own token counts need.
void expect_covers(KernelSpec catalogued, const KernelSpec& spec) {
  EXPECT_GE(catalogued.shared_bytes, spec.shared_bytes) << spec.name();
  catalogued.shared_bytes = spec.shared_bytes;
  EXPECT_EQ(catalogued, spec) << spec.name();
}

class KernelCatalog : public testing::TestWithParam<std::string> {};

TEST_P(KernelCatalog, HasEveryKernelOfTheCorpus) {
  const auto catalog = catalog_by_name(GetParam());
  const Device device = device_of(GetParam());
  std::size_t checked = 0;
  for (const std::string& problem : support::corpus_problems()) {
    const Plan planned = plan(parse_problem(problem).caps, device);
    for (const KernelSpec& spec : planned.data()->kernel_specs) {
      ++checked;
      ASSERT_TRUE(catalog.contains(spec.name())) << problem;
      expect_covers(catalog.at(spec.name()), spec);
    }
  }
  EXPECT_GT(checked, 500u);
}

// Options, sizes and devices that the enumeration leaves out change no kernel.
TEST_P(KernelCatalog, HasEveryKernelOfRandomProblems) {
  const auto catalog = catalog_by_name(GetParam());
  std::mt19937_64 random(1);
  std::size_t checked = 0;
  for (int i = 0; i < 2000; ++i) {
    Caps caps = random_caps(random);
    Device device = device_of(GetParam());
    device.multiprocessors = static_cast<int>(log_uniform(random, 1, 256));
    if (!can_implement(caps, device)) continue;
    const Plan planned = plan(caps, device);
    for (const KernelSpec& spec : planned.data()->kernel_specs) {
      ++checked;
      ASSERT_TRUE(catalog.contains(spec.name()));
      expect_covers(catalog.at(spec.name()), spec);
    }
  }
  EXPECT_GT(checked, 1000u);
}

TEST_P(KernelCatalog, IsSortedAndHasEachKernelOnceAndNotTooMany) {
  const std::vector<KernelSpec> catalog = kernel_catalog(GetParam());
  EXPECT_GE(catalog.size(), 50u);
  EXPECT_LE(catalog.size(), kMaxInstances);
  for (std::size_t i = 1; i < catalog.size(); ++i) EXPECT_LT(catalog[i - 1].name(), catalog[i].name());
}

INSTANTIATE_TEST_SUITE_P(Architectures, KernelCatalog, testing::ValuesIn(kernel_architectures()),
                         [](const auto& instance) { return instance.param; });

TEST(KernelCatalogArchitectures, AreThoseThatPlanningServes) {
  EXPECT_EQ(kernel_architectures(), (std::vector<std::string>{"sm_80", "sm_90a", "sm_100a", "sm_120a"}));
  for (const std::string& architecture : kernel_architectures())
    EXPECT_TRUE(can_implement(parse_problem("t4 k2 e4 h64 i64").caps, device_of(architecture))) << architecture;
}

TEST(KernelCatalogProblems, HaveTheKernelsOfTheirPlans) {
  const Caps caps = parse_problem("t4 k2 e4 h64 i64 nvfp4 bf16 silu").caps;
  const Plan planned = plan(caps, device_preset("h200"));
  std::vector<std::string> expected = planned.kernels(), names;
  std::sort(expected.begin(), expected.end());
  for (const KernelSpec& spec : kernels_of_problems("sm_90a", std::vector<Caps>{caps, caps}))
    names.push_back(spec.name());
  EXPECT_EQ(names, expected);
  EXPECT_TRUE(kernels_of_problems("sm_90a", {}).empty());
}

TEST(KernelCatalogProblems, RefuseWhatPlanningRefuses) {
  EXPECT_EQ(code_of([] { kernel_catalog("sm_75"); }), ErrorCode::usage);
  EXPECT_EQ(code_of([] { kernel_catalog(""); }), ErrorCode::usage);
  const std::vector<Caps> odd{parse_problem("t4 k2 e4 h65 i64").caps};
  EXPECT_EQ(code_of([&] { kernels_of_problems("sm_90a", odd); }), ErrorCode::unsupported);
  const std::vector<Caps> wide{parse_problem("t4 k2 e4 h64 i64 f32").caps};
  EXPECT_EQ(code_of([&] { kernels_of_problems("sm_90a", wide); }), ErrorCode::unsupported);
}

}  // namespace
}  // namespace fourfold
