// fourfold::quantize_checkpoint with the shard size as an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fourfold/model.h"

namespace fourfold {

/// A shard that other tools and file systems take without trouble.
inline constexpr std::uint64_t kMaxShardBytes = std::uint64_t{2} << 30;

/// quantize_checkpoint() of fourfold/model.h; shards hold at most `max_shard_bytes` of data, or one tensor.
QuantizeReport quantize_checkpoint_in_shards(const std::string& source, const std::string& destination,
                                             const QuantizeOptions& options,
                                             const std::function<void(const QuantizeProgress&)>& progress,
                                             std::uint64_t max_shard_bytes);

}  // namespace fourfold
