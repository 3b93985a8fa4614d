// The measuring protocol of bench moe, so that every speed claim has one instrument (docs/cli.md, "bench moe").
#include "moe_benchmark.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "fourfold/benchmark.h"
#include "fourfold/error.h"
#include "fourfold/moe.h"
#include "fourfold/verify.h"
#include "machine.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr std::uint64_t kWeightSeed = 1;
constexpr std::uint64_t kHashSeed = 2;     // inputs of the hashed call
constexpr std::uint64_t kRoutingSeed = 3;  // inputs of the timed calls
constexpr int kWarmUpCalls = 3;
// When the user does not say: as many calls as fit into a second, between these.
constexpr double kSecondsPerRow = 1.0;
constexpr int kMaxTimedCalls = 200;
// All layers together: far larger than any cache, so that no call finds its experts there.
constexpr std::uint64_t kMinWeightBytes = 256ull << 20;
constexpr std::uint64_t kCacheMultiple = 4;

// The inputs of one token count, and what a call with them touches.
class Call {
 public:
  Call(const Caps& caps, std::int64_t tokens)
      : caps_(caps),
        tokens_(tokens),
        element_bytes_(static_cast<std::size_t>(dtype_bits(caps.activation_dtype)) / 8),
        x_(static_cast<std::size_t>(tokens * caps.hidden) * element_bytes_),
        out_(x_.size()),
        ids_(static_cast<std::size_t>(tokens * caps.top_k)),
        weights_(ids_.size()) {
    // A map like that of the first of several ranks: the first experts are here, the others elsewhere.
    for (std::int64_t id = 0; id < caps.global_experts; ++id)
      map_.push_back(id < caps.experts ? static_cast<std::int32_t>(id) : -1);
    for (std::int64_t id = 0; id < caps.id_count(); ++id) order_.push_back(static_cast<std::int32_t>(id));
  }

  // x of random sign with magnitudes in [0.5, 1); ids uniform, distinct within a token where there are enough.
  void draw_activations(std::mt19937_64& random) {
    for (std::size_t i = 0; i * element_bytes_ < x_.size(); ++i) {
      const std::uint64_t bits = random();
      std::byte* at = x_.data() + i * element_bytes_;
      if (caps_.activation_dtype == DType::f32) {
        const auto value = static_cast<std::uint32_t>((bits & 0x807fffffu) | 0x3f000000u);
        std::memcpy(at, &value, sizeof value);
      } else {
        const bool f16 = caps_.activation_dtype == DType::f16;
        const auto value = static_cast<std::uint16_t>(f16 ? (bits & 0x83ffu) | 0x3800u : (bits & 0x807fu) | 0x3f00u);
        std::memcpy(at, &value, sizeof value);
      }
    }
  }

  void draw_routing(std::mt19937_64& random) {
    const auto experts = static_cast<std::int64_t>(order_.size());
    for (std::int64_t token = 0; token < tokens_; ++token) {
      double sum = 0;
      for (std::int64_t slot = 0; slot < caps_.top_k; ++slot) {
        // Fisher-Yates as far as it is needed; from the start again when top_k exceeds the experts.
        const std::int64_t first = slot % experts;
        const std::int64_t pick =
            first + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(experts - first));
        std::swap(order_[first], order_[pick]);
        ids_[token * caps_.top_k + slot] = order_[first];
        const double weight = 0.25 + static_cast<double>(random() >> 11) * 0x1p-53;
        weights_[token * caps_.top_k + slot] = static_cast<float>(weight);
        sum += weight;
      }
      for (std::int64_t slot = 0; slot < caps_.top_k; ++slot)
        weights_[token * caps_.top_k + slot] = static_cast<float>(weights_[token * caps_.top_k + slot] / sum);
    }
  }

  MoeTensors tensors(const ExpertWeights& weights) {
    MoeTensors t;
    t.weights = &weights;
    t.x = ConstTensorView(x_.data(), caps_.activation_dtype, {tokens_, caps_.hidden});
    t.topk_ids = ConstTensorView(ids_.data(), DType::i32, {tokens_, caps_.top_k});
    t.topk_weights = ConstTensorView(weights_.data(), DType::f32, {tokens_, caps_.top_k});
    t.out = TensorView(out_.data(), caps_.activation_dtype, {tokens_, caps_.hidden});
    if (!map_.empty())
      t.expert_map = ConstTensorView(map_.data(), DType::i32, {static_cast<std::int64_t>(map_.size())});
    return t;
  }

  // Bytes of the distinct experts that live routes reach, and their floating-point operations.
  double bytes_touched() const {
    std::vector<bool> touched(static_cast<std::size_t>(caps_.experts), false);
    for_live_routes([&](std::int32_t expert) { touched[expert] = true; });
    return static_cast<double>(std::count(touched.begin(), touched.end(), true)) * expert_weight_bytes(caps_);
  }
  double flop() const {
    double routes = 0;
    for_live_routes([&](std::int32_t) { ++routes; });
    const double per_weight = caps_.activation.gated() ? 6 : 4;  // 2 operations in each of 3 or 2 matrices
    return routes * per_weight * static_cast<double>(caps_.hidden) * static_cast<double>(caps_.intermediate);
  }
  std::uint64_t output_hash() const { return XXH3_64bits(out_.data(), out_.size()); }

 private:
  template <class Visit>
  void for_live_routes(const Visit& visit) const {
    for (const std::int32_t id : ids_) {
      const std::int32_t expert = map_.empty() ? id : map_[id];
      if (expert >= 0 && expert < caps_.experts) visit(expert);
    }
  }

  Caps caps_;
  std::int64_t tokens_;
  std::size_t element_bytes_;
  std::vector<std::byte> x_, out_;   // [tokens, hidden] activation dtype
  std::vector<std::int32_t> ids_;    // [tokens, top_k]
  std::vector<float> weights_;       // [tokens, top_k]
  std::vector<std::int32_t> map_;    // [global_experts]
  std::vector<std::int32_t> order_;  // a permutation of all ids
};

// Linear interpolation between the two nearest ranks.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

void keep_best(Probes& best, const Probes& now) {
  best.read_gb_per_s = std::max(best.read_gb_per_s, now.read_gb_per_s);
  best.bf16_gflop_per_s = std::max(best.bf16_gflop_per_s, now.bf16_gflop_per_s);
  best.f32_gflop_per_s = std::max(best.f32_gflop_per_s, now.f32_gflop_per_s);
}

std::vector<ExpertWeights> rotating_layers(const Plan& plan, Backend& backend, const MoeBenchmarkOptions& options) {
  const std::uint64_t layer = std::max<std::uint64_t>(plan.weight_bytes(), 1);
  const std::uint64_t wanted = std::max(kMinWeightBytes, kCacheMultiple * last_level_cache_bytes());
  std::uint64_t count = std::max<std::uint64_t>(2, (wanted + layer - 1) / layer);
  if (options.layers > 0) count = static_cast<std::uint64_t>(options.layers);
  // The random source of one layer lives beside the packed layers; a fifth of the memory stays free.
  const std::uint64_t usable = memory_info().available_bytes / 5 * 4;
  const std::uint64_t room = usable > layer ? (usable - layer) / layer : 0;
  if (room == 0)
    throw Error(ErrorCode::unavailable,
                fmt::format("{} of weights a layer, packed and as source, do not fit into the {} of memory that are "
                            "available; use fewer or smaller experts",
                            format_bytes(layer), format_bytes(memory_info().available_bytes)));
  if (count > room) {
    options.log(fmt::format("memory has room for {} of {} layers", room, count));
    count = room;
  }
  options.log(fmt::format("preparing {} layer{} of {}", count, count == 1 ? "" : "s", format_bytes(layer)));
  const RandomExperts experts(plan.caps(), kWeightSeed);
  std::vector<ExpertWeights> layers;
  for (std::uint64_t i = 0; i < count; ++i)
    layers.push_back(prepare_weights(plan, backend, *stacked_source(experts.stacked(), plan.caps())));
  return layers;
}

struct Samples {
  std::vector<double> seconds, bytes, flop;
};

double median_ratio(const std::vector<double>& amount, const std::vector<double>& seconds) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < amount.size(); ++i) ratios.push_back(amount[i] / seconds[i]);
  return quantile(std::move(ratios), 0.5);
}

// The probes of the whole run are not known yet: floor_ms and over_floor come last.
void fill_times(MoeBenchmarkRow& row, const Samples& samples) {
  row.ms_p10 = 1e3 * quantile(samples.seconds, 0.1);
  row.ms_median = 1e3 * quantile(samples.seconds, 0.5);
  row.ms_p90 = 1e3 * quantile(samples.seconds, 0.9);
  row.weight_gb_per_s = 1e-9 * median_ratio(samples.bytes, samples.seconds);
  row.gflop_per_s = 1e-9 * median_ratio(samples.flop, samples.seconds);
}

void fill_floor(MoeBenchmarkRow& row, const Samples& samples, const Probes& probes) {
  std::vector<double> floors;
  for (std::size_t i = 0; i < samples.bytes.size(); ++i)
    floors.push_back(
        std::max(samples.bytes[i] / (1e9 * probes.read_gb_per_s), samples.flop[i] / (1e9 * probes.bf16_gflop_per_s)));
  row.floor_ms = 1e3 * quantile(std::move(floors), 0.5);
  row.over_floor = row.ms_median / row.floor_ms;
}

class RowTimer {
 public:
  RowTimer(const Caps& caps, std::int64_t tokens, Backend& backend, const std::vector<ExpertWeights>& layers)
      : plan_(plan(with_tokens(caps, tokens), backend.device())),
        backend_(backend),
        layers_(layers),
        workspace_(Workspace::allocate(plan_, backend)),
        call_(plan_.caps(), tokens) {
    warm_up(plan_, backend);
  }
  std::uint64_t workspace_bytes() const { return plan_.workspace_bytes(); }

  std::uint64_t hash_of_fixed_inputs() {
    std::mt19937_64 random(kHashSeed);
    call_.draw_activations(random);
    call_.draw_routing(random);
    run(fourfold::bind(plan_, backend_, call_.tensors(layers_[0]), workspace_.span()));
    return call_.output_hash();
  }

  // One call with fresh routing on the next layer. Seconds of run() alone.
  double timed_call() {
    call_.draw_routing(random_);
    const Binding binding = fourfold::bind(plan_, backend_, call_.tensors(layers_[next_layer_]), workspace_.span());
    next_layer_ = (next_layer_ + 1) % layers_.size();
    const auto start = std::chrono::steady_clock::now();
    run(binding);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void add_sample(Samples& samples) {
    const double seconds = timed_call();
    samples.seconds.push_back(std::max(seconds, 1e-9));
    samples.bytes.push_back(call_.bytes_touched());
    samples.flop.push_back(call_.flop());
  }

 private:
  static Caps with_tokens(Caps caps, std::int64_t tokens) {
    caps.max_tokens = tokens;
    return caps;
  }

  Plan plan_;
  Backend& backend_;
  const std::vector<ExpertWeights>& layers_;
  Workspace workspace_;
  Call call_;
  std::mt19937_64 random_{kRoutingSeed};
  std::size_t next_layer_ = 0;
};

}  // namespace

MoeBenchmarkResult run_moe_benchmark(const Problem& problem, Backend& backend, const MoeBenchmarkOptions& options) {
  for (const std::int64_t tokens : problem.tokens)
    if (tokens < 1) throw Error(ErrorCode::usage, "t0: nothing runs for 0 tokens, so nothing can be timed; use t1");
  const Plan whole = plan(problem.caps, backend.device());
  const std::vector<ExpertWeights> layers = rotating_layers(whole, backend, options);
  MoeBenchmarkResult result;
  std::vector<Samples> all;
  for (const std::int64_t tokens : problem.tokens) {
    RowTimer timer(problem.caps, tokens, backend, layers);
    MoeBenchmarkRow row;
    row.tokens = tokens;
    row.workspace_bytes = timer.workspace_bytes();
    row.output_hash = timer.hash_of_fixed_inputs();
    keep_best(result.probes, measure_probes(backend));
    double warm_seconds = 0;
    for (int i = 0; i < kWarmUpCalls; ++i) warm_seconds = timer.timed_call();
    int calls = options.calls;
    if (calls == 0)
      calls = static_cast<int>(
          std::clamp<double>(kSecondsPerRow / std::max(warm_seconds, 1e-9), kMinTimedCalls, kMaxTimedCalls));
    Samples samples;
    for (int i = 0; i < calls; ++i) {
      if (i == calls / 2) {  // the machine's speed in the middle of the calls, too
        keep_best(result.probes, measure_probes(backend));
        timer.timed_call();
      }
      timer.add_sample(samples);
    }
    fill_times(row, samples);
    options.log(fmt::format("t{}: {:.3f} ms, median of {} calls", tokens, row.ms_median, calls));
    result.rows.push_back(row);
    all.push_back(std::move(samples));
  }
  for (std::size_t i = 0; i < all.size(); ++i) fill_floor(result.rows[i], all[i], result.probes);
  return result;
}

}  // namespace fourfold::cli
