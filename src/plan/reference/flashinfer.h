// Rows that FlashInfer's CuTe DSL W4A16 path permutes routes into. The bill itself is declared in request.h.
#pragma once

#include <cstdint>

#include "plan/reference/request.h"

namespace fourfold::reference {

/// Rows for `routes` routes of `experts` local experts, each expert padded to whole tiles, at worst:
/// floor((routes + experts x (tile - 1)) / tile) tiles, or a tile for each route when there are no more routes than
/// experts. Throws unsupported when it leaves 63 bits. Pure.
std::int64_t flashinfer_rows(std::int64_t routes, std::int64_t experts, std::int64_t tile);

}  // namespace fourfold::reference
