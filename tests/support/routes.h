// Routes written by hand.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/random_call.h"

namespace support {

/// Replaces a call's ids, row-major [T, k], in the width that it has.
void set_ids(fourfold::RandomCall& call, const std::vector<std::int64_t>& ids);
std::vector<std::int64_t> get_ids(const fourfold::RandomCall& call);

/// The same call with the other id width. Ids must fit.
fourfold::RandomCall with_id_width(const fourfold::RandomCall& call, bool ids_are_64_bit);

}  // namespace support
