// Uniform, Zipf and hot routing. Only integers and std::log decide, so that one seed gives one routing.
#include "benchmark/routing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace fourfold {
namespace {

constexpr std::array<std::string_view, 3> kRoutingNames{"uniform", "zipf", "hot8"};

}  // namespace

std::string_view routing_name(RoutingKind kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return index < kRoutingNames.size() ? kRoutingNames[index] : "unknown";
}

RoutingKind routing_from_name(std::string_view name) {
  const auto found = std::find(kRoutingNames.begin(), kRoutingNames.end(), name);
  check(found != kRoutingNames.end(), ErrorCode::usage, "routing \"{}\" is none; use {}", name,
        fmt::join(kRoutingNames, ", "));
  return static_cast<RoutingKind>(found - kRoutingNames.begin());
}

namespace benchmark {
namespace {

constexpr std::int64_t kHotExperts = 8;

double uniform(std::mt19937_64& random) { return static_cast<double>((random() >> 11) + 1) * 0x1p-53; }  // (0, 1]

std::vector<std::int32_t> all_ids(const Caps& caps) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(caps.id_count()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

/// The first `count` places become a random choice of all: Fisher-Yates as far as it is needed.
void shuffle_first(std::vector<std::int32_t>& ids, std::size_t count, std::mt19937_64& random) {
  for (std::size_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + random() % (ids.size() - i)]);
}

/// Equally likely ids out of `pool`; from the start again when top_k exceeds them.
void draw_equal(const Caps& caps, std::vector<std::int32_t> pool, std::mt19937_64& random,
                std::vector<std::int32_t>& ids) {
  const auto top_k = static_cast<std::size_t>(caps.top_k);
  for (std::int64_t token = 0; token < caps.max_tokens; ++token)
    for (std::size_t slot = 0; slot < top_k; ++slot) {
      const std::size_t first = slot % pool.size();
      std::swap(pool[first], pool[first + random() % (pool.size() - first)]);
      ids.push_back(pool[first]);
    }
}

/// Weighted choice without replacement (Efraimidis and Spirakis, 2006): the smallest of -log(u) / weight, weight 1 /
/// rank.
void draw_zipf(const Caps& caps, std::vector<std::int32_t> by_rank, std::mt19937_64& random,
               std::vector<std::int32_t>& ids) {
  struct Ticket {
    double key = 0;
    std::int32_t id = 0;
  };
  std::vector<Ticket> tickets(by_rank.size());
  const std::size_t distinct = std::min(static_cast<std::size_t>(caps.top_k), tickets.size());
  for (std::int64_t token = 0; token < caps.max_tokens; ++token) {
    for (std::size_t rank = 0; rank < tickets.size(); ++rank)
      tickets[rank] = {-std::log(uniform(random)) * static_cast<double>(rank + 1), by_rank[rank]};
    std::partial_sort(tickets.begin(), tickets.begin() + static_cast<std::ptrdiff_t>(distinct), tickets.end(),
                      [](const Ticket& a, const Ticket& b) { return a.key < b.key; });
    for (std::int64_t slot = 0; slot < caps.top_k; ++slot)
      ids.push_back(tickets[static_cast<std::size_t>(slot) % distinct].id);
  }
}

}  // namespace

Routes draw_routes(const Caps& caps, RoutingKind kind, std::mt19937_64& random) {
  const auto count = static_cast<std::size_t>(checked_mul(caps.max_tokens, caps.top_k, "routes (tokens x top_k)"));
  Routes routes;
  routes.ids.reserve(count);
  std::vector<std::int32_t> pool = all_ids(caps);
  switch (kind) {
    case RoutingKind::uniform:
      draw_equal(caps, std::move(pool), random, routes.ids);
      break;
    case RoutingKind::zipf:
      shuffle_first(pool, pool.size(), random);
      draw_zipf(caps, std::move(pool), random, routes.ids);
      break;
    case RoutingKind::hot8: {
      const auto hot = static_cast<std::size_t>(std::min(caps.id_count(), std::max(kHotExperts, caps.top_k)));
      shuffle_first(pool, hot, random);
      pool.resize(hot);
      draw_equal(caps, std::move(pool), random, routes.ids);
      break;
    }
  }
  routes.weights.resize(count);
  for (std::size_t token = 0; token < static_cast<std::size_t>(caps.max_tokens); ++token) {
    float* const row = routes.weights.data() + token * static_cast<std::size_t>(caps.top_k);
    float sum = 0;
    for (std::int64_t slot = 0; slot < caps.top_k; ++slot)
      sum += row[slot] = static_cast<float>(0.25 + 0.75 * uniform(random));
    for (std::int64_t slot = 0; slot < caps.top_k; ++slot) row[slot] /= sum;
  }
  return routes;
}

std::vector<std::int32_t> first_rank_map(const Caps& caps) {
  std::vector<std::int32_t> map;
  for (std::int64_t id = 0; id < caps.global_experts; ++id)
    map.push_back(id < caps.experts ? static_cast<std::int32_t>(id) : -1);
  return map;
}

Touched touched_by(const Caps& caps, const std::vector<std::int32_t>& ids) {
  std::vector<bool> hit(static_cast<std::size_t>(caps.experts), false);
  Touched touched;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= caps.experts) continue;  // elsewhere, by first_rank_map
    ++touched.routes;
    hit[static_cast<std::size_t>(id)] = true;
  }
  touched.experts = std::count(hit.begin(), hit.end(), true);
  return touched;
}

double flop_of_route(const Caps& caps) noexcept {
  const double matrices = caps.activation.gated() ? 3 : 2;
  return 2 * matrices * static_cast<double>(caps.hidden) * static_cast<double>(caps.intermediate);
}

}  // namespace benchmark
}  // namespace fourfold
