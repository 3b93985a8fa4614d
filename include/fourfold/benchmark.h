// Timing the operation on a GPU: cold weights, new routing in every call, captured graphs (docs/performance.md, "The
// protocol on a GPU"). What `fourfold bench moe --device cuda:0` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/backend.h"
#include "fourfold/plan.h"

namespace fourfold {

/// How tokens are spread over experts; experts of a token are distinct where there are enough.
///   uniform  every expert is equally likely
///   zipf     the r-th likeliest with weight 1 / r; which expert has which rank is new in every call
///   hot8     all tokens share eight experts (top_k of them when that is more), new ones in every call
enum class RoutingKind : std::uint8_t { uniform, zipf, hot8 };
/// "uniform", "zipf", "hot8". Pure.
std::string_view routing_name(RoutingKind kind) noexcept;
/// The inverse. Throws usage naming the three. Pure.
RoutingKind routing_from_name(std::string_view name);

/// Bytes of one expert as its format stores it: codes, scales and zero points, no padding, no biases. Pure.
double expert_weight_bytes(const Caps& caps) noexcept;

/// What a device can do at most, for the floor of a row; 0: not known.
struct FloorLimits {
  double bytes_per_s = 0;
  double flop_per_s = 0;
};
/// Limits measured on devices of this name ("NVIDIA H200"); zeros for one that was not measured. Pure.
FloorLimits floor_limits(std::string_view device_name) noexcept;

struct BenchmarkOptions {
  int replays = 31;     ///< timings of every graph, at least 1
  int warm_up = 3;      ///< replays of every graph before them
  double pause_ms = 3;  ///< least rest before a timing; a longer replay rests twice its own time
  int weight_sets = 0;  ///< copies of the layer that calls rotate over; 0: more than 2.5 GB together
  int calls = 0;        ///< calls of a graph; 0: as many as give a long enough replay
  FloorLimits limits;   ///< where not 0, instead of floor_limits()
  std::function<void(const std::string&)> log;  ///< progress in words; may be empty
};

/// One thing to measure.
struct BenchmarkCase {
  Caps caps;  ///< max_tokens is the token count of a call, at least 1
  RoutingKind routing = RoutingKind::uniform;
  std::int64_t capacity = 0;  ///< tokens that the plan serves; fewer than a call has: it runs in slices; 0: the call's
  /// Tile shapes instead of the planner's, as "2x1x3" (ROW_TILES x TOKEN_STEPS x STAGES): for experiments.
  std::string gate_up_shape, down_shape;
};

/// Of one call, from the replays of one graph: median, the interval that holds the true median with 95 % confidence,
/// and what a tenth of the replays stayed below and above.
struct BenchmarkTime {
  double median_us = 0, low_us = 0, high_us = 0, p10_us = 0, p90_us = 0;
};

/// A step of the operation: the median of a graph that stops after it, less that of the graph that stops before it.
struct StageTime {
  std::string name;  ///< "routing", "gate_up", "down", "combine"
  double us = 0;
};

/// What the driver's management library said while the layer ran; samples is 0 without it.
struct ClockReadings {
  int samples = 0;
  double sm_mhz_median = 0, sm_mhz_p05 = 0;
  double power_w_median = 0;
  std::vector<std::string> throttle;  ///< reasons for a lowered clock that any sample had
  double throttled_share = 0;         ///< of the samples
};

struct BenchmarkRow {
  BenchmarkCase subject;
  BenchmarkTime layer;
  std::vector<StageTime> stages;  ///< those the plan has launches for, in order; they add up to layer.median_us
  double experts_hit = 0;         ///< distinct experts of a call, mean over the calls of a graph
  double weight_bytes = 0;        ///< of these experts, mean
  double flop = 0;                ///< mean
  double floor_us = 0;            ///< max(weight_bytes / bytes_per_s, flop / flop_per_s); NaN without limits
  bool floor_is_bytes = true;
  double ratio = 0;     ///< layer over floor; NaN without limits
  double tb_per_s = 0;  ///< weight_bytes / layer
  double tflop_per_s = 0;
  std::uint64_t workspace_bytes = 0;
  std::uint64_t output_hash = 0;  ///< XXH3-64 of the output of one call with fixed inputs
  int weight_sets = 0, calls = 0, slices = 1;
  std::vector<std::string> kernels;  ///< of the band
  ClockReadings clocks;
};

/// Two cases timed in turn, replay by replay, with the same routing.
struct AbResult {
  BenchmarkRow a, b;
  double difference = 0;     ///< median over the pairs of (b - a) / a
  double low = 0, high = 0;  ///< holds the true median difference with 95 % confidence
  /// "b is slower", "b is faster", or "no difference shown" when 0 lies within [low, high].
  std::string verdict() const;
};

/// One instance that could serve a step, timed.
struct VariantRow {
  std::string stage;              ///< "gate_up" or "down"
  std::string kernel;             ///< name of the instance
  std::string shape;              ///< "2x1x3"
  BenchmarkTime time;             ///< of the step alone
  std::uint64_t output_hash = 0;  ///< of the layer; right instances give the same bits
  bool chosen = false;            ///< what the planner takes
  bool best = false;              ///< of its stage
};

/// Measures on one GPU. Holds device memory for weights and calls; not thread-safe, not meant to run beside other work.
class GpuBenchmark {
 public:
  /// `backend` is that of GPU `ordinal` and must outlive this. Throws as cuda_backend does.
  GpuBenchmark(std::shared_ptr<Backend> backend, int ordinal, BenchmarkOptions options);
  ~GpuBenchmark();
  GpuBenchmark(const GpuBenchmark&) = delete;
  GpuBenchmark& operator=(const GpuBenchmark&) = delete;
  /// The limits that rows are held against.
  FloorLimits limits() const noexcept;

  // Throw usage for a case without tokens and for a shape that is none, unsupported for a problem or shape that the
  // device cannot run, unavailable when memory is short, mismatch when the output of the fixed call has a value that
  // is not finite, or other bits after the timings than before.
  BenchmarkRow measure(const BenchmarkCase& subject);
  AbResult compare(const BenchmarkCase& a, const BenchmarkCase& b);
  /// Every instance that could serve the token count, stage by stage. `subject` forces no shape.
  std::vector<VariantRow> variants(const BenchmarkCase& subject);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fourfold
