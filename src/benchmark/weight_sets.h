// Copies of one layer in different memory, so that no call finds its experts in a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/handles.h"
#include "fourfold/moe.h"

namespace fourfold::benchmark {

/// All sets together hold more than this: many times any L2.
inline constexpr double kRotatedBytes = 2.5e9;

/// How many layers of `layer_bytes` rotate: `wanted`, or with 0 enough for kRotatedBytes, 2 to 64; fewer where nine
/// tenths of the free memory hold fewer. Pure.
std::int64_t weight_set_count(std::uint64_t layer_bytes, std::uint64_t free_bytes, int wanted);

struct WeightSetOptions {
  int sets = 0;  ///< 0: more than kRotatedBytes together, at least two
  std::function<void(const std::string&)> log;
};

/// Layers for plans of `plan`'s caps. A few random experts are packed as the product packs them and repeated on the
/// device; contents therefore repeat, memory does not. Throws unavailable when not even two layers fit into the
/// device's free memory, else as plan and prepare_weights.
std::vector<ExpertWeights> make_weight_sets(const Plan& plan, Backend& backend, const cuda::ContextRef& context,
                                            const WeightSetOptions& options);

}  // namespace fourfold::benchmark
