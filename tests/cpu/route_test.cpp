// Routing against a plain reference: for every expert, the routes that name it, in token and slot order.
#include "cpu/route.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace fourfold::cpu {
namespace {

struct Routed {
  std::vector<std::int64_t> offsets, routes;
  std::vector<std::int32_t> active;
  RouteResult result;
};

template <class Id>
Routed route_of(const std::vector<Id>& ids, std::int64_t top_k, std::int64_t experts, std::int64_t id_count,
                const std::int32_t* map = nullptr) {
  Routed out;
  const auto count = static_cast<std::int64_t>(ids.size());
  out.offsets.assign(static_cast<std::size_t>(experts + 1), -77);  // stale contents must not matter
  out.routes.assign(ids.size(), -77);
  out.active.assign(static_cast<std::size_t>(std::min(experts, count)), -77);
  RouteCall call;
  call.ids = ids.data();
  call.ids_are_64_bit = sizeof(Id) == 8;
  call.tokens = count / top_k;
  call.top_k = top_k;
  call.experts = experts;
  call.id_count = id_count;
  call.expert_map = map;
  out.result = route_tokens(call, {out.offsets.data(), out.active.data(), out.routes.data()});
  return out;
}

/// One pass per expert, as the definition says it.
template <class Id>
void expect_plain_order(const Routed& routed, const std::vector<Id>& ids, std::int64_t experts) {
  std::vector<std::int64_t> offsets{0}, routes;
  std::vector<std::int32_t> active;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    for (std::size_t route = 0; route < ids.size(); ++route)
      if (ids[route] == static_cast<Id>(expert)) routes.push_back(static_cast<std::int64_t>(route));
    if (static_cast<std::int64_t>(routes.size()) > offsets.back()) active.push_back(static_cast<std::int32_t>(expert));
    offsets.push_back(static_cast<std::int64_t>(routes.size()));
  }
  EXPECT_EQ(routed.offsets, offsets);
  ASSERT_EQ(routed.result.active_experts, static_cast<std::int64_t>(active.size()));
  EXPECT_TRUE(std::equal(active.begin(), active.end(), routed.active.begin()));
  ASSERT_GE(routed.routes.size(), routes.size());
  EXPECT_TRUE(std::equal(routes.begin(), routes.end(), routed.routes.begin()));
}

TEST(Route, GridOfExpertsAndTopK) {
  std::mt19937_64 random(1);
  int grids = 0;
  for (const std::int64_t experts : {1, 7, 8, 31, 33, 60, 64, 384, 512, 896, 1023, 1024, 1025, 4096})
    for (const std::int64_t top_k : {1, 8, 16, 17, 22, 32}) {
      SCOPED_TRACE(testing::Message() << "experts " << experts << " top_k " << top_k);
      std::vector<std::int32_t> ids(static_cast<std::size_t>(5 * top_k));
      std::int64_t invalid = 0;
      for (std::int32_t& id : ids) {
        id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(experts + 3)) - 1;  // -1 .. experts + 1
        invalid += id >= experts;
      }
      const Routed routed = route_of(ids, top_k, experts, experts);
      EXPECT_EQ(routed.result.invalid_ids, invalid);
      expect_plain_order(routed, ids, experts);
      ++grids;
    }
  EXPECT_EQ(grids, 14 * 6);
}

TEST(Route, BothIdWidthsAgree) {
  const std::vector<std::int32_t> narrow{3, 0, -1, 2, 3, 3, 4, -2};
  const std::vector<std::int64_t> wide(narrow.begin(), narrow.end());
  const Routed a = route_of(narrow, 2, 4, 4), b = route_of(wide, 2, 4, 4);
  EXPECT_EQ(a.offsets, b.offsets);
  EXPECT_EQ(a.routes, b.routes);
  EXPECT_EQ(a.result.invalid_ids, 2);
  EXPECT_EQ(b.result.invalid_ids, 2);
}

TEST(Route, HugeIdsAreCountedNotUsed) {
  const std::vector<std::int64_t> ids{std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 32, 1};
  const Routed routed = route_of(ids, 4, 2, 2);
  EXPECT_EQ(routed.result.invalid_ids, 3);
  EXPECT_EQ(routed.offsets, (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(routed.routes[0], 3);
}

TEST(Route, MapSendsToLocalExpertsAndItsOwnBadValuesAreCounted) {
  const std::int32_t map[] = {1, -1, 0, 2, -5};  // 2 experts: 2 and -5 are no local experts
  const std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 0};
  const Routed routed = route_of(ids, 3, 2, 5, map);
  EXPECT_EQ(routed.result.invalid_ids, 2);
  EXPECT_EQ(routed.offsets, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(routed.routes[0], 2);
  EXPECT_EQ(routed.routes[1], 0);
  EXPECT_EQ(routed.routes[2], 5);
}

}  // namespace
}  // namespace fourfold::cpu
