// What is measured, in which order, and what becomes of the times.
#include "benchmark/gpu_benchmark.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "benchmark/statistics.h"
#include "benchmark/tile_shapes.h"
#include "benchmark/weight_sets.h"
#include "core/check.h"
#include "plan/problem_text.h"

namespace fourfold {
namespace benchmark {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// A replay of a millisecond: the two or three microseconds that a graph costs once are then small.
constexpr double kReplayUs = 1000;
constexpr int kLeastCalls = 2, kMostCalls = 64;
// Where no limits are known: of a device of 2023, to choose the number of calls by.
constexpr FloorLimits kGuess{3e12, 500e12};
constexpr std::size_t kKeptLayouts = 2;

double floor_us(const FloorLimits& limits, double bytes, double flop) {
  if (limits.bytes_per_s <= 0) return kNaN;
  return 1e6 * std::max(bytes / limits.bytes_per_s, limits.flop_per_s > 0 ? flop / limits.flop_per_s : 0);
}

BenchmarkTime time_of(const std::vector<double>& us) {
  const MedianInterval interval = median_interval(us);
  return {quantile(us, 0.5), interval.low, interval.high, quantile(us, 0.1), quantile(us, 0.9)};
}

std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(b[i] - a[i]);
  return result;
}

/// Readings of a run of samples.
class ClockLog {
 public:
  void add(const std::optional<cuda::ClockSample>& sample) {
    if (!sample) return;
    mhz_.push_back(sample->sm_mhz);
    if (sample->power_w) watts_.push_back(*sample->power_w);
    const std::vector<std::string> reasons = cuda::throttle_reasons(sample->throttle_bits);
    throttled_ += reasons.empty() ? 0 : 1;
    bits_ |= sample->throttle_bits;
  }
  ClockReadings readings() const {
    ClockReadings readings;
    if (mhz_.empty()) return readings;
    readings.samples = static_cast<int>(mhz_.size());
    readings.sm_mhz_median = quantile(mhz_, 0.5);
    readings.sm_mhz_p05 = quantile(mhz_, 0.05);
    if (!watts_.empty()) readings.power_w_median = quantile(watts_, 0.5);
    readings.throttle = cuda::throttle_reasons(bits_);
    readings.throttled_share = static_cast<double>(throttled_) / static_cast<double>(mhz_.size());
    return readings;
  }

 private:
  std::vector<double> mhz_, watts_;
  std::uint64_t bits_ = 0;
  int throttled_ = 0;
};

/// What decides which weights serve a case.
std::string layout_key(Caps caps) {
  caps.max_tokens = caps.top_k = 1;
  caps.global_experts = 0;
  return caps_text(caps);
}

}  // namespace

GpuBenchmarkEngine::GpuBenchmarkEngine(std::shared_ptr<Backend> backend, cuda::ContextRef context,
                                       cuda::ClockMonitor clocks, BenchmarkOptions options)
    : backend_(std::move(backend)),
      context_(std::move(context)),
      clocks_(std::move(clocks)),
      options_(std::move(options)),
      limits_(floor_limits(backend_->device().name)),
      timer_(context_, {options_.replays, options_.warm_up, options_.pause_ms}) {
  check(options_.replays >= 1, ErrorCode::usage, "{} replays: at least 1 is needed for a time", options_.replays);
  if (options_.limits.bytes_per_s > 0) limits_.bytes_per_s = options_.limits.bytes_per_s;
  if (options_.limits.flop_per_s > 0) limits_.flop_per_s = options_.limits.flop_per_s;
  if (!clocks_.reason().empty()) log("no clocks: " + clocks_.reason());
}

void GpuBenchmarkEngine::log(const std::string& text) const {
  if (options_.log) options_.log(text);
}

GpuBenchmarkEngine::WeightSets GpuBenchmarkEngine::weights_for(const Plan& plan) {
  const std::string key = layout_key(plan.caps());
  for (const auto& [kept_key, sets] : kept_weights_)
    if (kept_key == key) return sets;
  if (kept_weights_.size() == kKeptLayouts) kept_weights_.erase(kept_weights_.begin());
  auto sets = std::make_shared<const std::vector<ExpertWeights>>(
      make_weight_sets(plan, *backend_, context_, {options_.weight_sets, options_.log}));
  kept_weights_.emplace_back(key, sets);
  return sets;
}

int GpuBenchmarkEngine::calls_for(const Caps& caps, RoutingKind routing, std::size_t sets) const {
  if (options_.calls > 0) return options_.calls;
  std::mt19937_64 random(0);
  const Touched touched = touched_by(caps, draw_routes(caps, routing, random).ids);
  const double us = floor_us(limits_.bytes_per_s > 0 ? limits_ : kGuess,
                             static_cast<double>(touched.experts) * expert_weight_bytes(caps),
                             static_cast<double>(touched.routes) * flop_of_route(caps));
  const int calls =
      static_cast<int>(std::clamp(std::ceil(kReplayUs / std::max(us, 1e-3)), double{kLeastCalls}, double{kMostCalls}));
  // Whole turns through the sets, so that the next replay begins where this one began and no sooner.
  const int turns = static_cast<int>(sets);
  return turns <= calls ? (calls + turns - 1) / turns * turns : calls;
}

Prepared GpuBenchmarkEngine::prepare(const BenchmarkCase& subject, int calls) {
  Plan plan = plan_of(subject, backend_->device());
  Prepared prepared{subject, plan, weights_for(plan), nullptr, {}, 0};
  if (calls == 0) calls = calls_for(subject.caps, subject.routing, prepared.weights->size());
  const CallPlace place{*backend_, context_, timer_.stream(), *prepared.weights};
  prepared.layer = std::make_unique<LayerGraphs>(place, subject, plan, calls);
  prepared.output_hash = prepared.layer->output_hash();
  prepared.stages = prepared.layer->record();
  return prepared;
}

void GpuBenchmarkEngine::check_output(const Prepared& prepared) const {
  const std::uint64_t again = prepared.layer->output_hash();
  check(again == prepared.output_hash, ErrorCode::mismatch,
        "{}: the same call gave output {:016x} before the timings and {:016x} after them; run fourfold verify",
        caps_text(prepared.subject.caps), prepared.output_hash, again);
}

CallTimes GpuBenchmarkEngine::time(std::span<const TimedGraph> graphs, const Prepared& lead_in, std::size_t watched,
                                   ClockReadings& clocks) {
  ClockLog samples;
  CallTimes times = timer_.time(graphs, lead_in.stages.front().exec, [&](std::size_t graph) {
    if (graph == watched) samples.add(clocks_.sample());
  });
  clocks = samples.readings();
  return times;
}

BenchmarkRow GpuBenchmarkEngine::row_of(const Prepared& prepared, const std::vector<double>& layer_us) const {
  const Caps& caps = prepared.subject.caps;
  BenchmarkRow row;
  row.subject = prepared.subject;
  row.layer = time_of(layer_us);
  row.experts_hit = prepared.layer->experts_hit();
  row.weight_bytes = row.experts_hit * expert_weight_bytes(caps);
  row.flop = prepared.layer->routes() * flop_of_route(caps);
  row.floor_us = floor_us(limits_, row.weight_bytes, row.flop);
  row.floor_is_bytes =
      row.weight_bytes * limits_.flop_per_s >= row.flop * limits_.bytes_per_s || limits_.flop_per_s <= 0;
  row.ratio = row.layer.median_us / row.floor_us;
  row.tb_per_s = row.weight_bytes / row.layer.median_us / 1e6;
  row.tflop_per_s = row.flop / row.layer.median_us / 1e6;
  row.workspace_bytes = prepared.plan.workspace_bytes();
  row.output_hash = prepared.output_hash;
  row.weight_sets = static_cast<int>(prepared.weights->size());
  row.calls = prepared.layer->calls();
  row.slices = prepared.layer->slices();
  row.kernels = prepared.plan.band_for(prepared.plan.caps().max_tokens).kernels;
  return row;
}

BenchmarkRow GpuBenchmarkEngine::measure(const BenchmarkCase& subject) {
  const Prepared prepared = prepare(subject);
  std::vector<TimedGraph> graphs;
  for (const StageGraph& stage : prepared.stages) graphs.push_back({&stage.exec, prepared.layer->calls()});
  ClockReadings clocks;
  const CallTimes times = time(graphs, prepared, graphs.size() - 1, clocks);
  check_output(prepared);
  BenchmarkRow row = row_of(prepared, times.back());
  row.clocks = std::move(clocks);
  double before = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double until = quantile(times[i], 0.5);
    row.stages.push_back({prepared.stages[i].name, until - before});
    before = until;
  }
  return row;
}

AbResult GpuBenchmarkEngine::compare(const BenchmarkCase& a, const BenchmarkCase& b) {
  const Prepared first = prepare(a);
  const Prepared second = prepare(b, first.layer->calls());
  const TimedGraph graphs[] = {{&first.stages.back().exec, first.layer->calls()},
                               {&second.stages.back().exec, second.layer->calls()}};
  ClockReadings clocks;
  const CallTimes times = time(graphs, first, 0, clocks);
  check_output(first);
  check_output(second);
  AbResult result{row_of(first, times[0]), row_of(second, times[1])};
  result.a.clocks = result.b.clocks = clocks;
  std::vector<double> relative = differences(times[0], times[1]);
  for (std::size_t i = 0; i < relative.size(); ++i) relative[i] /= times[0][i];
  const MedianInterval interval = median_interval(relative);
  result.difference = quantile(std::move(relative), 0.5);
  result.low = interval.low;
  result.high = interval.high;
  return result;
}

std::vector<VariantRow> GpuBenchmarkEngine::variants(const BenchmarkCase& subject) {
  check(subject.gate_up_shape.empty() && subject.down_shape.empty(), ErrorCode::usage,
        "variants: the case forces a shape already; leave it out");
  std::vector<Prepared> all;
  std::vector<TimedGraph> graphs;  // of each candidate: up to before its step, and up to its end
  const std::vector<Candidate> list = candidates(subject, backend_->device());
  for (const Candidate& candidate : list) {
    all.push_back(prepare(candidate.subject, all.empty() ? 0 : all.front().layer->calls()));
    log(fmt::format("{} of {}: {}", all.size(), list.size(), candidate.kernel));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto stage = std::find_if(all[i].stages.begin(), all[i].stages.end(),
                                    [&](const StageGraph& graph) { return graph.name == list[i].stage; });
    check(stage != all[i].stages.end() && stage != all[i].stages.begin(), ErrorCode::internal,
          "variants: no graph ends before {}", list[i].stage);
    const int calls = all[i].layer->calls();
    graphs.push_back({&std::prev(stage)->exec, calls});
    // The sum over a token's experts is part of down, whichever kernel makes it.
    graphs.push_back({list[i].stage == "down" ? &all[i].stages.back().exec : &stage->exec, calls});
  }
  std::vector<VariantRow> rows;
  if (list.empty()) return rows;
  ClockReadings clocks;
  const CallTimes times = time(graphs, all.front(), 1, clocks);
  for (std::size_t i = 0; i < list.size(); ++i) {
    check_output(all[i]);
    rows.push_back({list[i].stage, list[i].kernel, list[i].shape, time_of(differences(times[2 * i], times[2 * i + 1])),
                    all[i].output_hash, list[i].chosen, false});
  }
  for (const char* stage : {"gate_up", "down"}) {
    VariantRow* best = nullptr;
    for (VariantRow& row : rows)
      if (row.stage == stage && (best == nullptr || row.time.median_us < best->time.median_us)) best = &row;
    if (best != nullptr) best->best = true;
  }
  return rows;
}

}  // namespace benchmark

std::string AbResult::verdict() const {
  if (low > 0) return "b is slower";
  if (high < 0) return "b is faster";
  return "no difference shown";
}

struct GpuBenchmark::State {
  benchmark::GpuBenchmarkEngine engine;
};

GpuBenchmark::GpuBenchmark(std::shared_ptr<Backend> backend, int ordinal, BenchmarkOptions options) {
  cuda::ContextRef context = cuda::Context::retain(cuda::DriverApi::open(), ordinal);
  cuda::ClockMonitor clocks = cuda::ClockMonitor::open(*context);
  state_.reset(new State{
      benchmark::GpuBenchmarkEngine(std::move(backend), std::move(context), std::move(clocks), std::move(options))});
}
GpuBenchmark::~GpuBenchmark() = default;
FloorLimits GpuBenchmark::limits() const noexcept { return state_->engine.limits(); }
BenchmarkRow GpuBenchmark::measure(const BenchmarkCase& subject) { return state_->engine.measure(subject); }
AbResult GpuBenchmark::compare(const BenchmarkCase& a, const BenchmarkCase& b) { return state_->engine.compare(a, b); }
std::vector<VariantRow> GpuBenchmark::variants(const BenchmarkCase& subject) {
  return state_->engine.variants(subject);
}

}  // namespace fourfold
