// XXH3 behind hash.h, so that only this file compiles xxHash.
#include "core/hash.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

namespace fourfold {

std::uint64_t hash64(const void* data, std::size_t size, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data, size, seed);
}

std::string hash_hex(const void* data, std::size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace fourfold
