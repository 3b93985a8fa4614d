// Routes of benchmark calls: in range, distinct within a token, spread as their kind says, the same for a seed.
#include "benchmark/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "fourfold/error.h"

namespace fourfold::benchmark {
namespace {

constexpr RoutingKind kKinds[] = {RoutingKind::uniform, RoutingKind::zipf, RoutingKind::hot8};

Caps caps_of(const char* problem) { return parse_problem(problem).caps; }

Routes routes_of(const Caps& caps, RoutingKind kind, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return draw_routes(caps, kind, random);
}

TEST(BenchmarkRouting, IdsAreValidAndDistinctAndWeightsSumToOne) {
  for (const char* problem : {"t50 k8 e16 h64 i64", "t50 k8 e8 h64 i64", "t9 k3 e4 eg40 h64 i64"})
    for (const RoutingKind kind : kKinds) {
      const Caps caps = caps_of(problem);
      const Routes routes = routes_of(caps, kind, 1);
      ASSERT_EQ(routes.ids.size(), static_cast<std::size_t>(caps.max_tokens * caps.top_k));
      for (std::int64_t token = 0; token < caps.max_tokens; ++token) {
        std::set<std::int32_t> seen;
        float sum = 0;
        for (std::int64_t slot = 0; slot < caps.top_k; ++slot) {
          const auto at = static_cast<std::size_t>(token * caps.top_k + slot);
          EXPECT_GE(routes.ids[at], 0);
          EXPECT_LT(routes.ids[at], caps.id_count());
          EXPECT_GT(routes.weights[at], 0);
          seen.insert(routes.ids[at]);
          sum += routes.weights[at];
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(caps.top_k)) << problem << " " << routing_name(kind);
        EXPECT_NEAR(sum, 1, 1e-6 * caps.top_k);
      }
    }
}

TEST(BenchmarkRouting, MoreSlotsThanExpertsUseEveryExpert) {
  const Caps caps = caps_of("t6 k7 e3 h64 i64");
  for (const RoutingKind kind : kKinds) {
    const Routes routes = routes_of(caps, kind, 2);
    for (std::int64_t token = 0; token < caps.max_tokens; ++token) {
      const auto* row = routes.ids.data() + token * caps.top_k;
      EXPECT_EQ(std::set<std::int32_t>(row, row + caps.top_k).size(), 3u) << routing_name(kind);
    }
  }
}

std::vector<int> descending_counts(const Caps& caps, const Routes& routes) {
  std::vector<int> counts(static_cast<std::size_t>(caps.experts));
  for (const std::int32_t id : routes.ids) ++counts[static_cast<std::size_t>(id)];
  std::sort(counts.rbegin(), counts.rend());
  return counts;
}

TEST(BenchmarkRouting, KindsSpreadAsTheySay) {
  const Caps caps = caps_of("t20000 k1 e50 h64 i64");
  const std::vector<int> uniform = descending_counts(caps, routes_of(caps, RoutingKind::uniform, 3));
  // 400 each, standard deviation 20: all of 50 within five.
  EXPECT_LT(uniform.front(), 500);
  EXPECT_GT(uniform.back(), 300);
  // 20000 / (r H), H = 4.499 the 50th harmonic number: 4445 and 2223 at the first ranks, within five deviations.
  const std::vector<int> zipf = descending_counts(caps, routes_of(caps, RoutingKind::zipf, 3));
  EXPECT_NEAR(zipf[0], 4445, 295);
  EXPECT_NEAR(zipf[1], 2223, 222);
  const std::vector<int> hot = descending_counts(caps, routes_of(caps, RoutingKind::hot8, 3));
  EXPECT_GT(hot[7], 2000);
  EXPECT_EQ(hot[8], 0);
}

TEST(BenchmarkRouting, HotExpertsAreNewInEveryCallAndSeedsRepeat) {
  const Caps caps = caps_of("t4 k2 e160 h64 i64");
  std::mt19937_64 random(4);
  const Routes first = draw_routes(caps, RoutingKind::hot8, random),
               second = draw_routes(caps, RoutingKind::hot8, random);
  EXPECT_NE(first.ids, second.ids);
  EXPECT_EQ(routes_of(caps, RoutingKind::hot8, 4).ids, first.ids);
  EXPECT_EQ(routes_of(caps, RoutingKind::hot8, 4).weights, first.weights);
}

TEST(BenchmarkRouting, TouchedCountsExpertsThatAreHere) {
  const Caps caps = caps_of("t1 k4 e4 eg10 h64 i32 nvfp4 bf16 silu");
  const Touched touched = touched_by(caps, {0, 3, 3, 9, -1, 4});
  EXPECT_EQ(touched.experts, 2);
  EXPECT_EQ(touched.routes, 3);
  EXPECT_EQ(first_rank_map(caps), (std::vector<std::int32_t>{0, 1, 2, 3, -1, -1, -1, -1, -1, -1}));
  EXPECT_TRUE(first_rank_map(caps_of("t1 k1 e4 h64 i32")).empty());
  EXPECT_EQ(flop_of_route(caps), 6.0 * 64 * 32);
  EXPECT_EQ(flop_of_route(caps_of("t1 k1 e4 h64 i32 nvfp4 bf16 relu2")), 4.0 * 64 * 32);
}

TEST(BenchmarkRouting, NamesGoBothWays) {
  for (const RoutingKind kind : kKinds) EXPECT_EQ(routing_from_name(routing_name(kind)), kind);
  try {
    routing_from_name("skewed");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("uniform, zipf, hot8"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fourfold::benchmark
