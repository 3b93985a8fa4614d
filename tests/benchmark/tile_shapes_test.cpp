// Shapes in words, plans with forced shapes, and the list of candidates.
#include "benchmark/tile_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fourfold/error.h"
#include "plan/cuda_tile_table.h"
#include "plan/plan_data.h"

namespace fourfold::benchmark {
namespace {

BenchmarkCase case_of(const char* problem) {
  BenchmarkCase subject;
  subject.caps = parse_problem(problem).caps;
  return subject;
}
const Device& h200() {
  static const Device device = device_preset("h200");
  return device;
}

std::string kernels_of(const Plan& plan) {
  std::string all;
  for (const std::string& kernel : plan.kernels()) all += kernel + "\n";
  return all;
}

void expect_refused(const BenchmarkCase& subject, ErrorCode code, const std::string& part) {
  try {
    plan_of(subject, h200());
    ADD_FAILURE() << "nothing was thrown, expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(TileShapes, ForcedShapesAreThePlans) {
  BenchmarkCase subject = case_of("t64 k8 e160 h6144 i512");
  subject.gate_up_shape = "1x2x2";
  subject.down_shape = "sums:1x2x4";
  const std::string kernels = kernels_of(plan_of(subject, h200()));
  EXPECT_NE(kernels.find("gate_up_tiles<DTYPE=bf16,FORMAT=nvfp4,ROW_TILES=1,SPANS=4,STAGES=2,TOKEN_STEPS=2>"),
            std::string::npos)
      << kernels;
  EXPECT_NE(kernels.find("down_sums<DTYPE=bf16,FORMAT=nvfp4,ROW_TILES=1,SPANS=4,STAGES=4,TOKEN_STEPS=2>"),
            std::string::npos)
      << kernels;
  subject.down_shape = "rows:2x2x3";
  EXPECT_NE(kernels_of(plan_of(subject, h200())).find("down_rows<DTYPE=bf16,FORMAT=nvfp4,ROW_TILES=2"),
            std::string::npos);
}

TEST(TileShapes, AForcedShapeBringsTheOtherProjectionAlong) {
  BenchmarkCase subject = case_of("t64 k8 e160 h6144 i512");
  subject.gate_up_shape = "2x2x3";
  const Plan plan = plan_of(subject, h200());
  for (const KernelSpec& spec : plan.data()->kernel_specs)
    for (const auto& [name, value] : spec.defines)
      if (name == "TOKEN_STEPS") {
        EXPECT_EQ(value, "2") << spec.name();
      }
  EXPECT_EQ(plan.bands().front().token_tile, 16);
}

TEST(TileShapes, WithoutForceThePlanIsThePlanners) {
  const BenchmarkCase subject = case_of("t300 k8 e128 h2048 i768");
  const Plan own = plan(subject.caps, h200()), same = plan_of(subject, h200());
  EXPECT_EQ(own.kernels(), same.kernels());
  EXPECT_EQ(own.workspace_bytes(), same.workspace_bytes());
}

TEST(TileShapes, CapacityIsThePlansTokens) {
  BenchmarkCase subject = case_of("t3072 k8 e160 h6144 i512");
  subject.capacity = 512;
  EXPECT_EQ(plan_of(subject, h200()).caps().max_tokens, 512);
  subject.capacity = 5000;
  EXPECT_EQ(plan_of(subject, h200()).caps().max_tokens, 3072);
}

TEST(TileShapes, WhatCannotBeIsRefused) {
  BenchmarkCase subject = case_of("t64 k8 e160 h6144 i512");
  for (const char* text : {"2x1", "2x1x3x", "x1x3", "2x1x0", "-2x1x3", "2 x1x3", "2y1x3"}) {
    subject.gate_up_shape = text;
    expect_refused(subject, ErrorCode::usage, text);
  }
  subject.gate_up_shape = "4x2x64";  // 64 stages fit into no shared memory
  expect_refused(subject, ErrorCode::unsupported, "shared memory");
  subject.gate_up_shape = "2x1x3";
  subject.down_shape = "2x2x4";
  expect_refused(subject, ErrorCode::unsupported, "go together");
  BenchmarkCase nothing = case_of("t0 k8 e160 h6144 i512");
  expect_refused(nothing, ErrorCode::usage, "t0");
  nothing = case_of("t8 k8 e160 h6144 i512");
  nothing.capacity = -1;
  expect_refused(nothing, ErrorCode::usage, "capacity -1");
}

TEST(TileShapes, CandidatesAreDistinctForcedAndHoldTheChosen) {
  // Few tokens take every shape of the table; many take only the second projection's panels of rows.
  const std::size_t sums_and_rows = kDownSumsShapes.size() + kDownRowsShapes.size();
  for (const auto& [problem, downs] : {std::pair{"t8 k8 e160 h6144 i512", sums_and_rows},
                                       std::pair{"t3072 k8 e128 h2048 i768 int4 g128", kDownRowsShapes.size()}}) {
    const std::vector<Candidate> list = candidates(case_of(problem), h200());
    for (const char* stage : {"gate_up", "down"}) {
      std::vector<std::string> names;
      int chosen = 0;
      for (const Candidate& candidate : list)
        if (candidate.stage == stage) {
          names.push_back(candidate.kernel);
          chosen += candidate.chosen;
          EXPECT_NE(kernels_of(plan_of(candidate.subject, h200())).find(candidate.kernel), std::string::npos);
        }
      EXPECT_EQ(names.size(), stage == std::string("down") ? downs : kGateUpShapes.size()) << problem << " " << stage;
      EXPECT_EQ(chosen, 1) << problem << " " << stage;
      std::sort(names.begin(), names.end());
      EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << problem << " " << stage;
    }
  }
}

}  // namespace
}  // namespace fourfold::benchmark
