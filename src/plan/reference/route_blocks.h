// How b12x and vLLM's Marlin path cut routes into blocks of one expert: the same rule in both.
// Source: the published study of b12x 1.1.0 (route packing), vLLM's fused_marlin_moe.
#pragma once

#include <array>
#include <cstdint>

namespace fourfold::reference {

inline constexpr std::array<std::int64_t, 5> kRouteBlocks{8, 16, 32, 48, 64};

/// The first block whose mean fill, tokens x top_k / experts / block, is below 0.9; else the largest. Computed in
/// double as both systems do. Pure.
std::int64_t select_block(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) noexcept;

/// Slots for `routes` routes of `experts` experts, each expert padded to whole blocks, at worst:
/// routes + experts x (block - 1), or routes x block when that is less and there are fewer routes than experts.
/// Throws unsupported when it leaves 63 bits. Pure.
std::int64_t route_slots(std::int64_t routes, std::int64_t block, std::int64_t experts);

/// Words of fp32 scratch for sums that several thread blocks share: min(columns x slots, multiprocessors x 4 x block x
/// 256), doubled at block 8 (its tile still has 16 rows). Throws unsupported when it leaves 63 bits. Pure.
std::int64_t reduction_words(std::int64_t columns, std::int64_t slots, std::int64_t block,
                             std::int64_t multiprocessors);

}  // namespace fourfold::reference
