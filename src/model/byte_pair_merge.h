// Byte-pair merging (Sennrich et al. 2016): join the pair of neighbours with the lowest rank until none is left.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fourfold {

/// What joining two neighbouring tokens gives. A lower rank joins first.
struct Merge {
  std::int32_t rank = 0;
  std::int32_t result = 0;
};

/// Merges by their pair of ids.
class MergeTable {
 public:
  /// A pair that is there already gets the new rank, as in the reference implementation.
  void set(std::int32_t left, std::int32_t right, Merge merge) { merges_[key(left, right)] = merge; }
  /// Null when the two do not join. Thread-safe while nobody calls set().
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  void reserve(std::size_t count) { merges_.reserve(count); }

 private:
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::unordered_map<std::uint64_t, Merge> merges_;
};

/// Working memory of byte_pair_merge, kept by the caller between pieces.
struct MergeScratch {
  struct Symbol {
    std::int32_t id;
    std::int32_t previous, next;  // indices, -1 at the ends; next is -2 once the symbol was joined away
  };
  struct Step {
    std::int32_t rank, position;
    std::int32_t left, right, result;  // ids when the step was queued: a step whose pair changed is stale
  };
  std::vector<Symbol> symbols;
  std::vector<Step> heap;
};

/// Appends the ids of `piece` to `out`; `byte_ids` is [256]. Pairs of equal rank join from left to right.
/// O(n log n) for n bytes, so that a megabyte without a blank is no attack. `piece` is below 2^31 bytes.
void byte_pair_merge(std::string_view piece, const std::int32_t* byte_ids, const MergeTable& merges,
                     MergeScratch& scratch, std::vector<std::int32_t>& out);

}  // namespace fourfold
