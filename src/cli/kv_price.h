// Bytes of memory as tokens of KV cache, and back.
#pragma once

#include <cstdint>

namespace fourfold::cli {

/// What a token of the cache costs on one rank, as an exact fraction: decode-context parallelism shares a token among
/// ranks.
struct KvPrice {
  std::int64_t bytes = 0;  ///< 0: unknown
  std::int64_t ranks = 1;  ///< that share the bytes
  bool known() const noexcept { return bytes > 0; }
  double bytes_per_token() const noexcept { return static_cast<double>(bytes) / static_cast<double>(ranks); }
  /// Whole tokens that fit into `size` bytes. 0 when unknown.
  std::int64_t tokens(std::uint64_t size) const noexcept;
  /// Bytes of `count` tokens on one rank, rounded up. Throws usage past 63 bits.
  std::uint64_t bytes_of(std::int64_t count) const;
};

}  // namespace fourfold::cli
