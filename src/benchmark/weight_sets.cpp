// Random experts, packed once and repeated over whole layers.
#include "benchmark/weight_sets.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "cuda/device_experts.h"
#include "fourfold/verify.h"
#include "plan/plan_data.h"

namespace fourfold::benchmark {
namespace {

constexpr std::uint64_t kWeightSeed = 1;
// Packed on the host: enough of them that neighbours in a call differ, few enough that packing takes a second.
constexpr std::int64_t kMostPackedExperts = 8, kLeastPackedExperts = 2;
constexpr std::int64_t kPackedBytes = std::int64_t{96} << 20;
constexpr std::int64_t kMostSets = 64;     // of layers so small that no number of them leaves the caches
constexpr std::uint64_t kSpareShare = 10;  // of the free memory stays free for calls: one tenth

std::uint64_t free_bytes(const cuda::Context& context) {
  const cuda::ContextGuard current(context);
  std::size_t free = 0, total = 0;
  context.driver().call(context.driver().mem_get_info, context.ordinal(), &free, &total);
  return free;
}

}  // namespace

std::int64_t weight_set_count(std::uint64_t layer_bytes, std::uint64_t free_bytes, int wanted) {
  const std::uint64_t layer = std::max<std::uint64_t>(layer_bytes, 1);
  const auto turns = static_cast<std::int64_t>(std::floor(kRotatedBytes / static_cast<double>(layer))) + 1;
  const std::int64_t count = wanted > 0 ? wanted : std::clamp<std::int64_t>(turns, 2, kMostSets);
  return std::min(count, static_cast<std::int64_t>((free_bytes - free_bytes / kSpareShare) / layer));
}

std::vector<ExpertWeights> make_weight_sets(const Plan& plan, Backend& backend, const cuda::ContextRef& context,
                                            const WeightSetOptions& options) {
  const std::uint64_t free = free_bytes(*context);
  const std::int64_t count = weight_set_count(plan.weight_bytes(), free, options.sets);
  const std::int64_t least = options.sets == 1 ? 1 : 2;
  check(count >= least, ErrorCode::unavailable,
        "{} copies of a layer of {} bytes do not fit into the {} bytes that cuda:{} has free; use fewer or smaller "
        "experts",
        least, plan.weight_bytes(), free, context->ordinal());
  Caps few_caps = plan.caps();
  const auto expert_bytes = static_cast<std::int64_t>(plan.weight_bytes()) / few_caps.experts + 1;
  few_caps.experts =
      std::min(few_caps.experts, std::clamp(kPackedBytes / expert_bytes, kLeastPackedExperts, kMostPackedExperts));
  few_caps.global_experts = 0;
  if (options.log)
    options.log(fmt::format("{} weight sets of {:.1f} MB, {} different experts", count,
                            static_cast<double>(plan.weight_bytes()) / 1e6, few_caps.experts));
  const RandomExperts experts(few_caps, kWeightSeed);
  const ExpertWeights few =
      prepare_weights(fourfold::plan(few_caps, plan.device()), backend, *stacked_source(experts.stacked(), few_caps));
  const auto* packed = dynamic_cast<const cuda::DeviceExperts*>(few.packed().get());
  check(packed != nullptr, ErrorCode::internal, "weight sets: device \"{}\" packs no device experts",
        plan.device().name);
  std::vector<ExpertWeights> sets;
  for (std::int64_t set = 0; set < count; ++set)
    sets.emplace_back(std::make_shared<const cuda::DeviceExperts>(*plan.data(), *packed, set));
  return sets;
}

}  // namespace fourfold::benchmark
