// What graphs of a layer hold, and plans that stop after a step.
#include "benchmark/layer_graphs.h"

#include <gtest/gtest.h>

#include "cuda/cuda_backend_fixture.h"
#include "plan/plan_data.h"

namespace fourfold::benchmark {
namespace {

class LayerGraphsTest : public cuda::CudaBackendTest {
 protected:
  void SetUp() override {
    cuda::CudaBackendTest::SetUp();
    naive_kernels_ = false;
    backend_ = make_backend();
    device_ = context();
    stream_ = cuda::Stream::create(device_);
  }
  void TearDown() override {
    weights_.clear();
    stream_ = {};
    device_.reset();
    backend_.reset();
    cuda::CudaBackendTest::TearDown();
  }
  LayerGraphs layer_of(const std::string& problem, int calls) {
    BenchmarkCase subject;
    subject.caps = parse_problem(problem).caps;
    const Plan plan = fourfold::plan(subject.caps, backend_->device());
    const RandomExperts experts(subject.caps, 1);
    const auto source = stacked_source(experts.stacked(), subject.caps);
    weights_.push_back(prepare_weights(plan, *backend_, *source));
    return {{*backend_, device_, stream_.value(), weights_}, subject, plan, calls};
  }
  std::shared_ptr<Backend> backend_;
  cuda::ContextRef device_;
  cuda::Stream stream_;
  std::vector<ExpertWeights> weights_;
};

TEST_F(LayerGraphsTest, EachGraphHasTheLaunchesUpToItsStep) {
  const LayerGraphs layer = layer_of("t400 k2 e8 h768 i64", 3);
  const std::vector<StageGraph> graphs = layer.record();
  ASSERT_EQ(graphs.size(), 4u);
  const std::uint64_t begin = control_.call_count();
  std::vector<int> launches;
  for (const StageGraph& graph : graphs) {
    const int before = control_.count("cuLaunchKernel", begin);
    graph.exec.launch(stream_.value());
    launches.push_back(control_.count("cuLaunchKernel", begin) - before);
  }
  // Three calls; the second projection has two panels, each with a combine.
  EXPECT_EQ(launches, (std::vector<int>{3, 6, 12, 18}));
}

TEST_F(LayerGraphsTest, PlansStopAfterAStepAndKeepEverythingElse) {
  const Plan whole = plan(parse_problem("t400 k2 e8 h768 i64").caps, backend_->device());
  const Plan part = plan_up_to(whole, 1);
  EXPECT_EQ(part.workspace_bytes(), whole.workspace_bytes());
  EXPECT_EQ(part.kernels(), whole.kernels());
  ASSERT_EQ(part.bands().size(), whole.bands().size());
  for (std::size_t band = 0; band < part.bands().size(); ++band)
    EXPECT_EQ(part.data()->cuda_bands[band].launches.size(), 2u);
  EXPECT_EQ(plan_up_to(whole, 3).data()->cuda_bands.back().launches.size(),
            whole.data()->cuda_bands.back().launches.size());
}

TEST_F(LayerGraphsTest, AnOutputThatIsNotFiniteIsNoSpeed) {
  const LayerGraphs layer = layer_of("t4 k2 e8 h128 i64", 1);
  EXPECT_EQ(layer.output_hash(), layer.output_hash());
  // The stand-in writes no output: what was in that memory is the result. It belongs to the last launch.
  kernels::DownTilesParams down{};
  std::uint64_t launch = 0;
  while (control_.get_params(launch + 1, nullptr, 0) > 0) ++launch;
  ASSERT_EQ(control_.get_params(launch, &down, sizeof down), sizeof down);
  down.out[77] = 0x7fc0;
  cuda::expect_error(ErrorCode::mismatch, {"1 of the 512 values", "fourfold verify"}, [&] { layer.output_hash(); });
}

TEST_F(LayerGraphsTest, MeansAreThoseOfTheTimedCalls) {
  const LayerGraphs layer = layer_of("t5 k2 e2 h128 i64", 4);
  EXPECT_EQ(layer.calls(), 4);
  EXPECT_EQ(layer.slices(), 1);
  EXPECT_EQ(layer.experts_hit(), 2);
  EXPECT_EQ(layer.routes(), 10);
}

}  // namespace
}  // namespace fourfold::benchmark
