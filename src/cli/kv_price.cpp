// Bytes of memory as tokens of KV cache, and back.
#include "kv_price.h"

#include <fmt/format.h>

#include "fourfold/error.h"

namespace fourfold::cli {

std::int64_t KvPrice::tokens(std::uint64_t size) const noexcept {
  if (!known()) return 0;
  const unsigned __int128 shared = static_cast<unsigned __int128>(size) * static_cast<unsigned __int128>(ranks);
  const unsigned __int128 count = shared / static_cast<unsigned __int128>(bytes);
  return count > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(count);
}

std::uint64_t KvPrice::bytes_of(std::int64_t count) const {
  const unsigned __int128 all = static_cast<unsigned __int128>(count) * static_cast<unsigned __int128>(bytes);
  const unsigned __int128 each =
      (all + static_cast<unsigned __int128>(ranks - 1)) / static_cast<unsigned __int128>(ranks);
  if (each > INT64_MAX)
    throw Error(ErrorCode::usage, fmt::format("{} KV tokens of {} bytes are no size below 2^63", count, bytes));
  return static_cast<std::uint64_t>(each);
}

}  // namespace fourfold::cli
