// One case on the device: inputs, and graphs of its calls that stop after each step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "benchmark/routing.h"
#include "cuda/handles.h"
#include "fourfold/benchmark.h"
#include "fourfold/moe.h"

namespace fourfold::benchmark {

/// The calls of a graph, one after the other, up to and including a step.
struct StageGraph {
  std::string name;  ///< "routing", "gate_up", "down", "combine"
  cuda::GraphExec exec;
};

/// Where calls run and on which weights, in turn.
struct CallPlace {
  Backend& backend;
  cuda::ContextRef context;
  cuda::CUstream stream = nullptr;
  std::span<const ExpertWeights> weights;
};

/// Holds the memory of the calls. x, output and workspace are the same for all calls, as a decoder's are; ids and
/// routing weights are new in each.
class LayerGraphs {
 public:
  /// `plan` serves the case's capacity. Draws inputs, loads kernels, captures nothing yet.
  LayerGraphs(const CallPlace& place, const BenchmarkCase& subject, const Plan& plan, int calls);
  /// Records a graph for every step that has launches; the last is the whole layer.
  std::vector<StageGraph> record() const;
  /// Runs one call with inputs that depend on the case alone. Hash of the output. Throws mismatch when a value of it is
  /// not finite.
  std::uint64_t output_hash() const;
  int calls() const noexcept { return calls_; }
  int slices() const noexcept;
  // Means over the calls.
  double experts_hit() const noexcept { return experts_hit_; }
  double routes() const noexcept { return routes_; }

 private:
  MoeTensors tensors(int call) const;
  std::vector<Binding> bind(const Plan& plan, int call) const;
  cuda::GraphExec capture(const Plan& plan) const;

  CallPlace place_;
  BenchmarkCase subject_;
  Plan plan_;
  int calls_;
  double experts_hit_ = 0, routes_ = 0;
  // Device memory. Call number calls_ is the one with fixed inputs.
  Workspace x_, out_, ids_, weights_, map_, workspace_;
};

/// The plan with only the launches of steps up to `stage`; the same memory, kernels and weights.
Plan plan_up_to(const Plan& plan, int stage);

}  // namespace fourfold::benchmark
