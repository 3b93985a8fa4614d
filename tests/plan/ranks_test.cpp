// Splitting a layer over ranks: nothing lost, nothing twice, groups kept whole.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "fourfold/error.h"
#include "fourfold/plan.h"
#include "random_caps.h"

namespace fourfold {
namespace {

Caps caps_of(std::string_view problem) { return parse_problem(problem).caps; }

TEST(Ranks, OneRankIsTheWholeLayer) {
  const Caps caps = caps_of("t64 k8 e160 h6144 i2048 nvfp4 bf16 silu");
  const auto ranks = split_over_ranks(caps, 1, 1);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].caps, caps);
}

TEST(Ranks, TensorParallelSplitsColumnsAndKeepsExperts) {
  for (const RankShare& rank : split_over_ranks(caps_of("t64 k8 e160 h6144 i2048 nvfp4 bf16 silu"), 4, 1)) {
    EXPECT_EQ(rank.caps.intermediate, 512);
    EXPECT_EQ(rank.caps.experts, 160);
    EXPECT_EQ(rank.caps.global_experts, 0);
    EXPECT_EQ(rank.first_column, 512 * rank.rank);
  }
}

TEST(Ranks, RemaindersGoToTheFirstRanks) {
  // 1856 columns are 116 groups of 16: 15, 15, 15, 15, 14, 14, 14, 14.
  const auto columns = split_over_ranks(caps_of("t1 k6 e128 h2688 i1856 nvfp4 bf16 relu2"), 8, 1);
  EXPECT_EQ(columns[0].caps.intermediate, 240);
  EXPECT_EQ(columns[3].caps.intermediate, 240);
  EXPECT_EQ(columns[4].caps.intermediate, 224);
  EXPECT_EQ(columns[7].caps.intermediate, 224);
  const auto experts = split_over_ranks(caps_of("t1 k8 e160 h64 i64 nvfp4 bf16 silu"), 1, 7);
  EXPECT_EQ(experts[0].caps.experts, 23);
  EXPECT_EQ(experts[5].caps.experts, 23);
  EXPECT_EQ(experts[6].caps.experts, 22);
  EXPECT_EQ(experts[6].caps.global_experts, 160);
}

TEST(Ranks, TheTailGoesToTheLastRank) {
  // 72 columns in groups of 32: 2 groups, and one of 8.
  const auto ranks = split_over_ranks(caps_of("t1 k1 e1 h64 i72 mxfp4 bf16 silu"), 2, 1);
  EXPECT_EQ(ranks[0].caps.intermediate, 64);
  EXPECT_EQ(ranks[1].caps.intermediate, 8);
}

TEST(Ranks, EverythingIsSomewhereOnce) {
  std::mt19937_64 random(41);
  int split = 0;
  for (int round = 0; round < 2000; ++round) {
    Caps caps = random_caps(random);
    caps.global_experts = 0;
    const int tp = 1 + static_cast<int>(random() % 8), ep = 1 + static_cast<int>(random() % 8);
    std::vector<RankShare> ranks;
    try {
      ranks = split_over_ranks(caps, tp, ep);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unsupported);
      continue;
    }
    ++split;
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(tp * ep));
    std::int64_t area = 0;
    for (const RankShare& rank : ranks) {
      EXPECT_EQ(rank.rank, rank.ep_rank * tp + rank.tp_rank);
      EXPECT_GE(rank.caps.experts, 1);
      EXPECT_GE(rank.caps.intermediate, 8);
      EXPECT_EQ(rank.caps.intermediate % 8, 0);
      EXPECT_LE(rank.first_expert + rank.caps.experts, caps.experts);
      EXPECT_LE(rank.first_column + rank.caps.intermediate, caps.intermediate);
      area += rank.caps.experts * rank.caps.intermediate;
      for (const RankShare& other : ranks) {
        if (other.rank == rank.rank) continue;
        const bool experts_apart = rank.first_expert + rank.caps.experts <= other.first_expert ||
                                   other.first_expert + other.caps.experts <= rank.first_expert;
        const bool columns_apart = rank.first_column + rank.caps.intermediate <= other.first_column ||
                                   other.first_column + other.caps.intermediate <= rank.first_column;
        EXPECT_TRUE(experts_apart || columns_apart) << rank.rank << " and " << other.rank;
      }
    }
    EXPECT_EQ(area, caps.experts * caps.intermediate);
  }
  EXPECT_GT(split, 500);
}

void expect_error(std::string_view problem, int tp, int ep, ErrorCode code, const std::string& says) {
  try {
    split_over_ranks(caps_of(problem), tp, ep);
    ADD_FAILURE() << problem;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(Ranks, WhatCannotBeSplitIsRefusedWithTheLargestThatCan) {
  expect_error("t1 k1 e4 h64 i64 nvfp4", 5, 1, ErrorCode::unsupported, "at most 4");
  expect_error("t1 k1 e4 h64 i64 int4 grow", 2, 1, ErrorCode::unsupported, "at most 1");
  expect_error("t1 k1 e4 h64 i64 nvfp4", 1, 5, ErrorCode::unsupported, "use 4");
  expect_error("t1 k1 e4 h64 i64 nvfp4", 0, 1, ErrorCode::usage, "tp = 0");
  expect_error("t1 k1 e4 h64 i64 nvfp4", 1, -1, ErrorCode::usage, "ep = -1");
  expect_error("t1 k1 e4 eg8 h64 i64 nvfp4", 1, 2, ErrorCode::usage, "eg8");
}

}  // namespace
}  // namespace fourfold
