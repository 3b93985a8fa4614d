// Digests are XXH3's published values and depend on every byte, the length and the seed.
#include "core/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace fourfold {
namespace {

TEST(Hash, EmptyInputHasThePublishedValues) {
  EXPECT_EQ(hash64(nullptr, 0), 0x2d06800538d394c2ull);
  EXPECT_EQ(hash_hex(nullptr, 0), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, EveryByteLengthAndSeedMatters) {
  std::vector<unsigned char> bytes(300, 0);
  std::set<std::uint64_t> seen;
  std::set<std::string> seen_hex;
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    seen.insert(hash64(bytes.data(), length));
    seen_hex.insert(hash_hex(bytes.data(), length));
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = 1;
    seen.insert(hash64(bytes.data(), bytes.size()));
    seen_hex.insert(hash_hex(bytes.data(), bytes.size()));
    bytes[at] = 0;
  }
  EXPECT_EQ(seen.size(), 601u);
  EXPECT_EQ(seen_hex.size(), 601u);
  EXPECT_NE(hash64(bytes.data(), 300, 1), hash64(bytes.data(), 300, 2));
}

}  // namespace
}  // namespace fourfold
