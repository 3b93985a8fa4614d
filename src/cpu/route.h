// Orders the routes of a call by expert: the only step that looks at ids.
#pragma once

#include <cstdint>

namespace fourfold::cpu {

/// What route_tokens reads. Ids are [tokens, top_k].
struct RouteCall {
  const void* ids = nullptr;  // i32 or i64
  bool ids_are_64_bit = false;
  std::int64_t tokens = 0, top_k = 0;
  std::int64_t experts = 0;                  // local
  std::int64_t id_count = 0;                 // ids lie in [-1, id_count)
  const std::int32_t* expert_map = nullptr;  // [id_count] id -> local expert or -1, or null
};

/// Where it writes.
struct RouteTable {
  std::int64_t* offsets = nullptr;  // [experts + 1] routes before each expert
  std::int32_t* active = nullptr;   // [min(experts, tokens * top_k)] experts with a route, ascending
  std::int64_t* routes = nullptr;   // [tokens * top_k] token * top_k + slot, by expert, then token, then slot
};

struct RouteResult {
  std::int64_t active_experts = 0;
  std::int64_t invalid_ids = 0;  // ids, or mapped experts, out of range: they add zero
};

/// Counting sort in two passes, stable, so the order of a token's sums never depends on the batch. -1 is skipped.
/// Thread-safe on different tables; allocates nothing.
RouteResult route_tokens(const RouteCall& call, const RouteTable& table) noexcept;

}  // namespace fourfold::cpu
