// Seeded routes of benchmark calls, and what a call with them touches.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "fourfold/benchmark.h"

namespace fourfold::benchmark {

/// Routes of one call of T tokens.
struct Routes {
  std::vector<std::int32_t> ids;  // [T, k]
  std::vector<float> weights;     // [T, k] positive, rows sum to 1
};
/// Draws routes for caps.max_tokens tokens; the sequence of `random` is all that decides.
Routes draw_routes(const Caps& caps, RoutingKind kind, std::mt19937_64& random);

/// A map like that of the first of several ranks: the first experts are here, the others elsewhere; empty without
/// caps.global_experts. Pure.
std::vector<std::int32_t> first_rank_map(const Caps& caps);

/// What a call touches: experts that are here and have a route, and the routes that lead to them.
struct Touched {
  std::int64_t experts = 0, routes = 0;
};
Touched touched_by(const Caps& caps, const std::vector<std::int32_t>& ids);

/// Of one route: 2 operations for each weight of its expert. Pure.
double flop_of_route(const Caps& caps) noexcept;

}  // namespace fourfold::benchmark
