// The instrument on the stand-in driver, whose kernels take a set time each: what is captured and replayed, in which
// order, and what becomes of the times.
#include "benchmark/gpu_benchmark.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "benchmark/weight_sets.h"
#include "cuda/cuda_backend_fixture.h"

namespace fourfold::benchmark {
namespace {

constexpr double kLaunchUs = 5;

class GpuBenchmarkTest : public cuda::CudaBackendTest {
 protected:
  void SetUp() override {
    cuda::CudaBackendTest::SetUp();
    naive_kernels_ = false;
    control_.set_launch_us(kLaunchUs);
    options_.replays = 7;
    options_.warm_up = 1;
    options_.pause_ms = 0;
    options_.weight_sets = 3;
    options_.limits = {1e12, 100e12};
    options_.log = [this](const std::string& text) { log_ += text + "\n"; };
  }
  /// The engine is gone on return of `use`, which gets it.
  void with_engine(const std::function<void(GpuBenchmarkEngine&)>& use) {
    const cuda::ContextRef device = context();
    cuda::ClockMonitor clocks = cuda::ClockMonitor::open(*device, FOURFOLD_STAND_IN_CUDA);
    GpuBenchmarkEngine engine(make_backend(), device, std::move(clocks), options_);
    use(engine);
  }
  static BenchmarkCase case_of(const char* problem) {
    BenchmarkCase subject;
    subject.caps = parse_problem(problem).caps;
    return subject;
  }
  std::vector<StandInCall> calls_of(const std::string& name) const {
    std::vector<StandInCall> found;
    for (const StandInCall& call : control_.calls())
      if (name == call.name) found.push_back(call);
    return found;
  }
  BenchmarkOptions options_;
  std::string log_;
};

TEST_F(GpuBenchmarkTest, StagesAreTheirLaunchesAndAddUpToTheLayer) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    const BenchmarkRow few = engine.measure(case_of("t8 k2 e8 h128 i64"));
    std::map<std::string, double> us;
    double sum = 0;
    for (const StageTime& stage : few.stages) sum += us[stage.name] = stage.us;
    EXPECT_EQ(us.size(), 3u);
    for (const char* name : {"routing", "gate_up", "down"}) EXPECT_NEAR(us[name], kLaunchUs, 1e-3) << name;
    EXPECT_NEAR(few.layer.median_us, 3 * kLaunchUs, 1e-3);
    EXPECT_NEAR(sum, few.layer.median_us, 1e-9);
    EXPECT_LE(few.layer.low_us, few.layer.median_us);
    EXPECT_LE(few.layer.median_us, few.layer.high_us);
    // Two panels of columns: two launches of down and two of combine, in turn.
    const BenchmarkRow many = engine.measure(case_of("t400 k2 e8 h768 i64"));
    ASSERT_EQ(many.stages.size(), 4u);
    EXPECT_NEAR(many.stages[2].us, 2 * kLaunchUs, 1e-3);
    EXPECT_NEAR(many.stages[3].us, 2 * kLaunchUs, 1e-3);
    EXPECT_EQ(many.stages[3].name, "combine");
  });
}

TEST_F(GpuBenchmarkTest, FloorsRatiosAndRatesFollowFromWhatIsTouched) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    const BenchmarkCase subject = case_of("t1 k8 e8 h128 i64");  // every expert in every call
    const BenchmarkRow row = engine.measure(subject);
    EXPECT_EQ(row.experts_hit, 8);
    EXPECT_DOUBLE_EQ(row.weight_bytes, 8 * expert_weight_bytes(subject.caps));
    EXPECT_DOUBLE_EQ(row.flop, 8 * 6.0 * 128 * 64);
    EXPECT_DOUBLE_EQ(row.floor_us, row.weight_bytes / 1e6);
    EXPECT_TRUE(row.floor_is_bytes);
    EXPECT_DOUBLE_EQ(row.ratio, row.layer.median_us / row.floor_us);
    EXPECT_DOUBLE_EQ(row.tb_per_s, row.weight_bytes / row.layer.median_us * 1e-6);
    EXPECT_EQ(row.workspace_bytes, plan(subject.caps, device_preset("h200")).workspace_bytes());
    EXPECT_EQ(row.weight_sets, 3);
    EXPECT_EQ(row.slices, 1);
    EXPECT_EQ(row.kernels.size(), 3u);
    EXPECT_FALSE(engine.measure(case_of("t512 k8 e8 h128 i64")).floor_is_bytes);
  });
  options_.limits = {};
  with_engine([&](GpuBenchmarkEngine& engine) {
    EXPECT_TRUE(std::isnan(engine.measure(case_of("t1 k2 e8 h128 i64")).ratio)) << "no limits are known";
  });
}

TEST_F(GpuBenchmarkTest, CallsOfAGraphRotateOverTheWeightSetsWithRoutesOfTheirOwn) {
  options_.calls = 6;
  with_engine([&](GpuBenchmarkEngine& engine) { engine.measure(case_of("t4 k2 e8 h128 i64")); });
  // Launches by the thread are the fixed call and those of captures; the last six layers of three kernels before the
  // closing fixed call are the graph of the whole layer.
  std::vector<std::uint64_t> launches_of_layer;
  std::uint64_t total = 0;
  for (const StandInCall& call : calls_of("cuLaunchKernel")) total += call.thread != 0;
  ASSERT_EQ(total, 3u + 6 * (1 + 2 + 3) + 3);
  std::vector<const void*> units, ids;
  for (std::uint64_t call = 0; call < 6; ++call) {
    const std::uint64_t first = 3 + 6 * (1 + 2) + 3 * call;
    kernels::RouteTilesParams route{};
    kernels::GateUpTilesParams gate_up{};
    ASSERT_EQ(control_.get_params(first, &route, sizeof route), sizeof route);
    ASSERT_EQ(control_.get_params(first + 1, &gate_up, sizeof gate_up), sizeof gate_up);
    ids.push_back(route.topk_ids);
    units.push_back(gate_up.gate_up.units);
  }
  EXPECT_EQ(std::set<const void*>(ids.begin(), ids.end()).size(), 6u);
  EXPECT_EQ(std::set<const void*>(units.begin(), units.end()).size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(units[i], units[i + 3]);
    EXPECT_NE(units[i], units[(i + 1) % 3]);
  }
}

TEST_F(GpuBenchmarkTest, ReplaysAreTimedBehindALeadIn) {
  options_.calls = 2;
  with_engine([&](GpuBenchmarkEngine& engine) { engine.measure(case_of("t4 k2 e8 h128 i64")); });
  // Between two records of a timing there is exactly one launch of a graph, and before the first one of another.
  std::vector<std::string> names;
  for (const StandInCall& call : control_.calls())
    if (call.thread != 0 && (std::string(call.name) == "cuGraphLaunch" || std::string(call.name) == "cuEventRecord" ||
                             std::string(call.name) == "cuEventSynchronize"))
      names.emplace_back(call.name);
  int timings = 0;
  for (std::size_t i = 3; i < names.size(); ++i) {
    if (names[i] != "cuEventSynchronize") continue;
    ++timings;
    EXPECT_EQ(names[i - 1], "cuEventRecord");
    EXPECT_EQ(names[i - 2], "cuGraphLaunch");
    EXPECT_EQ(names[i - 3], "cuEventRecord");
    if (timings <= 2) continue;  // the first two measure the lead-in itself
    EXPECT_EQ(names[i - 4], "cuGraphLaunch");
  }
  EXPECT_EQ(timings, 2 + 3 * (1 + 7));
}

TEST_F(GpuBenchmarkTest, NothingIsAllocatedOrLoadedWhileItTimes) {
  options_.calls = 2;
  with_engine([&](GpuBenchmarkEngine& engine) { engine.measure(case_of("t4 k2 e8 h128 i64")); });
  const std::vector<StandInCall> calls = control_.calls();
  std::size_t first = calls.size(), last = 0;
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (std::string(calls[i].name) == "cuEventRecord") first = std::min(first, i), last = i;
  ASSERT_LT(first, last);
  for (std::size_t i = first; i < last; ++i)
    for (const char* forbidden : {"cuMemAlloc_v2", "cuMemFree_v2", "cuModuleLoadData", "cuMemcpyHtoDAsync_v2",
                                  "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags"})
      EXPECT_STRNE(calls[i].name, forbidden);
}

TEST_F(GpuBenchmarkTest, CapacityRunsInSlices) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    BenchmarkCase subject = case_of("t40 k2 e8 h128 i64");
    const BenchmarkRow whole = engine.measure(subject);
    subject.capacity = 16;
    const BenchmarkRow sliced = engine.measure(subject);
    EXPECT_EQ(sliced.slices, 3);
    EXPECT_NEAR(sliced.layer.median_us, 3 * whole.layer.median_us, 1e-3);
    EXPECT_LT(sliced.workspace_bytes, whole.workspace_bytes);
    EXPECT_DOUBLE_EQ(sliced.floor_us, whole.floor_us) << "the work is the same";
  });
}

TEST_F(GpuBenchmarkTest, PairsAreJudgedByTheIntervalOfTheirDifference) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    const BenchmarkCase whole = case_of("t40 k2 e8 h128 i64");
    BenchmarkCase sliced = whole;
    sliced.capacity = 20;
    const AbResult slower = engine.compare(whole, sliced);
    EXPECT_NEAR(slower.difference, 1, 1e-6) << "two slices take twice the launches";
    EXPECT_GT(slower.low, 0);
    EXPECT_EQ(slower.verdict(), "b is slower");
    const AbResult faster = engine.compare(sliced, whole);
    EXPECT_NEAR(faster.difference, -0.5, 1e-6);
    EXPECT_EQ(faster.verdict(), "b is faster");
    EXPECT_EQ(slower.a.calls, slower.b.calls);
  });
  AbResult undecided;
  undecided.difference = 0.01;
  undecided.low = -0.002;
  undecided.high = 0.02;
  EXPECT_EQ(undecided.verdict(), "no difference shown");
}

TEST_F(GpuBenchmarkTest, VariantsAreTimedStepByStep) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    const std::vector<VariantRow> rows = engine.variants(case_of("t4 k2 e8 h128 i64"));
    std::map<std::string, int> count, chosen, best;
    for (const VariantRow& row : rows) {
      ++count[row.stage];
      chosen[row.stage] += row.chosen;
      best[row.stage] += row.best;
      // rows and combine for each of its panels, one launch for everything else
      const double launches = row.shape.starts_with("rows:") ? 2 : 1;
      EXPECT_NEAR(row.time.median_us, launches * kLaunchUs, 1e-3) << row.kernel;
    }
    for (const char* stage : {"gate_up", "down"}) {
      EXPECT_GE(count[stage], 4) << stage;
      EXPECT_EQ(chosen[stage], 1) << stage;
      EXPECT_EQ(best[stage], 1) << stage;
    }
    BenchmarkCase forced = case_of("t4 k2 e8 h128 i64");
    forced.gate_up_shape = "2x1x3";
    cuda::expect_error(ErrorCode::usage, {"variants"}, [&] { engine.variants(forced); });
  });
}

TEST_F(GpuBenchmarkTest, ClocksAreReadWhileTheLayerRuns) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    const ClockReadings clocks = engine.measure(case_of("t4 k2 e8 h128 i64")).clocks;
    EXPECT_EQ(clocks.samples, options_.replays);
    EXPECT_EQ(clocks.sm_mhz_median, 1935);
    EXPECT_EQ(clocks.power_w_median, 612.5);
    EXPECT_EQ(clocks.throttle, std::vector<std::string>{"power cap"});
    EXPECT_EQ(clocks.throttled_share, 1);
  });
  EXPECT_EQ(control_.management_sessions(), 0);
}

TEST_F(GpuBenchmarkTest, WeightsServeEveryCaseOfTheirLayout) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    engine.measure(case_of("t4 k2 e8 h128 i64"));
    const int copies = control_.count("cuMemcpyDtoDAsync_v2");
    EXPECT_GT(copies, 0);
    engine.measure(case_of("t9 k4 e8 h128 i64"));
    EXPECT_EQ(control_.count("cuMemcpyDtoDAsync_v2"), copies) << "the same layout";
    engine.measure(case_of("t4 k2 e8 h128 i64 mxfp4"));
    EXPECT_GT(control_.count("cuMemcpyDtoDAsync_v2"), copies);
  });
}

TEST_F(GpuBenchmarkTest, EqualInputsGiveEqualHashesAndCallsDependOnTheBytes) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    const BenchmarkRow first = engine.measure(case_of("t1 k2 e8 h128 i64"));
    EXPECT_EQ(engine.measure(case_of("t1 k2 e8 h128 i64")).output_hash, first.output_hash);
    EXPECT_EQ(first.calls % first.weight_sets, 0) << "whole turns";
    EXPECT_GE(first.calls, 60) << "small calls: many in a graph";
  });
}

TEST_F(GpuBenchmarkTest, MemoryThatIsShortIsSaid) {
  options_.weight_sets = 0;
  control_.set_memory_limit(0, 6 << 20);
  with_engine([&](GpuBenchmarkEngine& engine) {
    cuda::expect_error(ErrorCode::unavailable, {"copies of a layer", "cuda:0"},
                       [&] { engine.measure(case_of("t4 k2 e64 h512 i256")); });
  });
  control_.set_memory_limit(0, std::uint64_t{40} << 20);
  with_engine([&](GpuBenchmarkEngine& engine) {
    const BenchmarkRow row = engine.measure(case_of("t4 k2 e64 h512 i256"));
    EXPECT_GE(row.weight_sets, 2);
    EXPECT_LT(row.weight_sets, 4);
  });
}

TEST_F(GpuBenchmarkTest, WhatCannotRunIsRefused) {
  with_engine([&](GpuBenchmarkEngine& engine) {
    cuda::expect_error(ErrorCode::usage, {"t0"}, [&] { engine.measure(case_of("t0 k2 e8 h128 i64")); });
    cuda::expect_error(ErrorCode::unsupported, {"F32"}, [&] { engine.measure(case_of("t1 k2 e8 h128 i64 f32")); });
  });
  options_.replays = 0;
  cuda::expect_error(ErrorCode::usage, {"0 replays"}, [&] { with_engine([](GpuBenchmarkEngine&) {}); });
}

}  // namespace
}  // namespace fourfold::benchmark
