// How b12x and vLLM's Marlin path cut routes into blocks of one expert: the same rule in both.
#include "plan/reference/route_blocks.h"

#include <algorithm>

#include "core/check.h"
#include "plan/reference/request.h"

namespace fourfold::reference {
namespace {

// Thread blocks of a multiprocessor at most, and the widest output tile: what the scratch is reserved for.
constexpr std::int64_t kBlocksOfMultiprocessor = 4;
constexpr std::int64_t kTileColumns = 256;

}  // namespace

std::int64_t select_block(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) noexcept {
  const double mean = static_cast<double>(tokens) * static_cast<double>(top_k) / static_cast<double>(experts);
  for (const std::int64_t block : kRouteBlocks)
    if (mean < 0.9 * static_cast<double>(block)) return block;
  return kRouteBlocks.back();
}

std::int64_t route_slots(std::int64_t routes, std::int64_t block, std::int64_t experts) {
  const std::int64_t slots = checked_add(routes, product({experts, block - 1}), "route slots");
  return routes < experts ? std::min(slots, product({routes, block})) : slots;
}

std::int64_t reduction_words(std::int64_t columns, std::int64_t slots, std::int64_t block,
                             std::int64_t multiprocessors) {
  const std::int64_t tiles = product({multiprocessors, kBlocksOfMultiprocessor, block, kTileColumns});
  const std::int64_t words = std::min(product({columns, slots}), tiles);
  return std::max<std::int64_t>(1, product({words, block == 8 ? 2 : 1}));
}

}  // namespace fourfold::reference
