// The engine of GpuBenchmark, on a context that the caller brings: tests bring one of a stand-in driver.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/graph_timer.h"
#include "benchmark/layer_graphs.h"
#include "cuda/clock_monitor.h"
#include "fourfold/benchmark.h"

namespace fourfold::benchmark {

/// A case made ready: its plan, weights in turn, calls in device memory, graphs.
struct Prepared {
  BenchmarkCase subject;
  Plan plan;
  std::shared_ptr<const std::vector<ExpertWeights>> weights;
  std::unique_ptr<LayerGraphs> layer;
  std::vector<StageGraph> stages;
  std::uint64_t output_hash = 0;
};

class GpuBenchmarkEngine {
 public:
  GpuBenchmarkEngine(std::shared_ptr<Backend> backend, cuda::ContextRef context, cuda::ClockMonitor clocks,
                     BenchmarkOptions options);
  // As those of GpuBenchmark.
  FloorLimits limits() const noexcept { return limits_; }
  BenchmarkRow measure(const BenchmarkCase& subject);
  AbResult compare(const BenchmarkCase& a, const BenchmarkCase& b);
  std::vector<VariantRow> variants(const BenchmarkCase& subject);

 private:
  using WeightSets = std::shared_ptr<const std::vector<ExpertWeights>>;
  /// Weights for the plan; those of the last two layouts are kept.
  WeightSets weights_for(const Plan& plan);
  int calls_for(const Caps& caps, RoutingKind routing, std::size_t sets) const;
  /// `calls` > 0 fixes their number.
  Prepared prepare(const BenchmarkCase& subject, int calls = 0);
  /// Times graphs of prepared cases in turn, samples clocks while `watched` runs, checks that outputs kept their bits.
  CallTimes time(std::span<const TimedGraph> graphs, const Prepared& lead_in, std::size_t watched,
                 ClockReadings& clocks);
  void check_output(const Prepared& prepared) const;
  BenchmarkRow row_of(const Prepared& prepared, const std::vector<double>& layer_us) const;
  void log(const std::string& text) const;

  std::shared_ptr<Backend> backend_;
  cuda::ContextRef context_;
  cuda::ClockMonitor clocks_;
  BenchmarkOptions options_;
  FloorLimits limits_;
  GraphTimer timer_;
  std::vector<std::pair<std::string, WeightSets>> kept_weights_;
};

}  // namespace fourfold::benchmark
