// Digests of bytes for cache keys and output fingerprints (XXH3, 64 and 128 bit). Not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fourfold {

/// XXH3-64 of `size` bytes. `data` may be null when `size` is 0. Pure, the same on every machine.
std::uint64_t hash64(const void* data, std::size_t size, std::uint64_t seed = 0) noexcept;

/// XXH3-128 of `size` bytes as 32 lower-case hex digits, canonical (big-endian) order. Pure.
std::string hash_hex(const void* data, std::size_t size);

}  // namespace fourfold
