// Sizes behind the bill of vLLM's fused Marlin MoE. The bill itself is declared in request.h.
#pragma once

#include <cstdint>

#include "plan/reference/request.h"

namespace fourfold::reference {

struct MarlinSizes {
  std::int64_t routes = 0, block = 8, slots = 0;
  std::int64_t gate_up_words = 0, down_words = 0;  ///< fp32 scratch of the two projections; never both at a time
};
/// Throws unsupported when a size leaves 63 bits. Pure.
MarlinSizes marlin_sizes(const Caps& caps, std::int64_t multiprocessors);

}  // namespace fourfold::reference
