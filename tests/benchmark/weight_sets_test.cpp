// How many layers rotate, and that they lie apart.
#include "benchmark/weight_sets.h"

#include <gtest/gtest.h>

#include <set>

#include "cuda/cuda_backend_fixture.h"
#include "cuda/device_experts.h"

namespace fourfold::benchmark {
namespace {

class WeightSetsTest : public cuda::CudaBackendTest {
 protected:
  void SetUp() override {
    cuda::CudaBackendTest::SetUp();
    naive_kernels_ = false;
  }
};

TEST_F(WeightSetsTest, SmallLayersHaveManyAndTheUserMayChoose) {
  const auto backend = make_backend();
  const cuda::ContextRef device = context();
  const Plan plan = fourfold::plan(parse_problem("t1 k2 e20 h128 i64").caps, backend->device());
  EXPECT_EQ(make_weight_sets(plan, *backend, device, {}).size(), 64u);
  const std::vector<ExpertWeights> sets = make_weight_sets(plan, *backend, device, {3, {}});
  ASSERT_EQ(sets.size(), 3u);
  std::set<const void*> places;
  for (const ExpertWeights& set : sets) {
    EXPECT_EQ(set.bytes(), plan.weight_bytes());
    EXPECT_EQ(set.packed()->caps().experts, 20);
    places.insert(dynamic_cast<const cuda::DeviceExperts&>(*set.packed()).gate_up_units().units);
  }
  EXPECT_EQ(places.size(), 3u);
}

TEST(WeightSetCount, IsEnoughForTwoAndAHalfGigabytesAndFitsTheMemory) {
  constexpr std::uint64_t kFree = 140'000'000'000;
  EXPECT_EQ(weight_set_count(849'346'560, kFree, 0), 3);
  EXPECT_EQ(weight_set_count(339'738'624, kFree, 0), 8);
  EXPECT_EQ(weight_set_count(2'038'431'744, kFree, 0), 2);
  EXPECT_EQ(weight_set_count(30'000'000'000, kFree, 0), 2) << "one layer alone would be the same in every call";
  EXPECT_EQ(weight_set_count(1000, kFree, 0), 64);
  EXPECT_EQ(weight_set_count(0, kFree, 0), 64);
  EXPECT_EQ(weight_set_count(849'346'560, kFree, 7), 7);
  EXPECT_EQ(weight_set_count(849'346'560, 2'000'000'000, 0), 2) << "a tenth stays free";
  EXPECT_EQ(weight_set_count(849'346'560, 800'000'000, 0), 0);
}

}  // namespace
}  // namespace fourfold::benchmark
