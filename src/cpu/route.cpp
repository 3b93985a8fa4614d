// Counting sort of routes by expert. Every id is checked before it becomes an index.
#include "cpu/route.h"

#include <algorithm>

namespace fourfold::cpu {
namespace {

constexpr std::int64_t kNone = -1;
constexpr std::int64_t kInvalid = -2;

/// Local expert of an id, kNone or kInvalid.
template <class Id>
std::int64_t local_expert(const RouteCall& call, std::int64_t route) noexcept {
  const std::int64_t id = static_cast<const Id*>(call.ids)[route];
  if (id == -1) return kNone;
  if (id < 0 || id >= call.id_count) return kInvalid;
  if (!call.expert_map) return id;
  const std::int64_t local = call.expert_map[id];
  if (local == -1) return kNone;
  return local < 0 || local >= call.experts ? kInvalid : local;
}

template <class Id>
RouteResult route_typed(const RouteCall& call, const RouteTable& table) noexcept {
  RouteResult result;
  const std::int64_t routes = call.tokens * call.top_k;
  std::fill_n(table.offsets, call.experts + 1, 0);
  for (std::int64_t route = 0; route < routes; ++route) {
    const std::int64_t expert = local_expert<Id>(call, route);
    if (expert >= 0) ++table.offsets[expert + 1];
    result.invalid_ids += expert == kInvalid;
  }
  for (std::int64_t expert = 0; expert < call.experts; ++expert) {
    if (table.offsets[expert + 1] != 0) table.active[result.active_experts++] = static_cast<std::int32_t>(expert);
    table.offsets[expert + 1] += table.offsets[expert];
  }
  for (std::int64_t route = 0; route < routes; ++route) {  // leaves each expert's end in its own entry
    const std::int64_t expert = local_expert<Id>(call, route);
    if (expert >= 0) table.routes[table.offsets[expert]++] = route;
  }
  for (std::int64_t expert = call.experts; expert > 0; --expert) table.offsets[expert] = table.offsets[expert - 1];
  table.offsets[0] = 0;
  return result;
}

}  // namespace

RouteResult route_tokens(const RouteCall& call, const RouteTable& table) noexcept {
  return call.ids_are_64_bit ? route_typed<std::int64_t>(call, table) : route_typed<std::int32_t>(call, table);
}

}  // namespace fourfold::cpu
