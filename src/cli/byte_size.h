// Sizes as people write them: 300MiB, 512M, 1.5GiB, 536870912.
#pragma once

#include <cstdint>
#include <string>

namespace fourfold::cli {

/// The bytes that `text` says: a number, with K, M, G or T (or KiB, MiB, GiB, TiB), powers of 1024; a fraction only
/// with a suffix. Throws usage naming `option` for anything else and for 2^63 or more.
std::int64_t byte_size(const std::string& option, const std::string& text);

}  // namespace fourfold::cli
