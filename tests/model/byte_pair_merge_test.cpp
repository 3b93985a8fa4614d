// Merging against the definition, done naively: find the lowest rank, leftmost first, join, start over.
#include "model/byte_pair_merge.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>
#include <string>

namespace fourfold {
namespace {

using Ids = std::vector<std::int32_t>;

std::array<std::int32_t, 256> identity() {
  std::array<std::int32_t, 256> ids{};
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Ids merged(std::string_view piece, const MergeTable& merges) {
  static const auto byte_ids = identity();
  MergeScratch scratch;
  Ids ids;
  byte_pair_merge(piece, byte_ids.data(), merges, scratch, ids);
  return ids;
}

Ids merged_naively(std::string_view piece, const MergeTable& merges) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    std::size_t best = ids.size();
    const Merge* lowest = nullptr;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      if (const Merge* merge = merges.find(ids[i], ids[i + 1]); merge && (!lowest || merge->rank < lowest->rank)) {
        lowest = merge;
        best = i;
      }
    if (lowest == nullptr) return ids;
    ids[best] = lowest->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BytePairMerge, AnEmptyPieceGivesNothing) { EXPECT_EQ(merged("", {}), Ids{}); }

TEST(BytePairMerge, WithoutMergesBytesStay) { EXPECT_EQ(merged("ab", {}), (Ids{'a', 'b'})); }

TEST(BytePairMerge, EqualPairsJoinFromTheLeft) {
  MergeTable merges;
  merges.set('a', 'a', {0, 256});
  EXPECT_EQ(merged("aaa", merges), (Ids{256, 'a'}));
  EXPECT_EQ(merged("aaaa", merges), (Ids{256, 256}));
}

TEST(BytePairMerge, AgreesWithTheDefinition) {
  std::mt19937 random(5);
  std::size_t joined = 0;
  for (int table = 0; table < 50; ++table) {
    MergeTable merges;
    for (std::int32_t rank = 0; rank < 30; ++rank) {
      // Parts are letters a to d or earlier results, as in a trained table.
      const auto part = [&] {
        const auto index = static_cast<std::int32_t>(random() % static_cast<unsigned>(4 + rank));
        return index < 4 ? 'a' + index : 256 + index - 4;
      };
      const std::int32_t left = part(), right = part();
      merges.set(left, right, {rank, 256 + rank});
    }
    for (int round = 0; round < 20; ++round) {
      std::string piece;
      for (std::size_t i = random() % 60; i > 0; --i) piece += static_cast<char>('a' + random() % 4);
      const Ids ids = merged(piece, merges);
      EXPECT_EQ(ids, merged_naively(piece, merges)) << piece;
      joined += piece.size() - ids.size();
    }
  }
  EXPECT_GT(joined, 1000u);
}

}  // namespace
}  // namespace fourfold
