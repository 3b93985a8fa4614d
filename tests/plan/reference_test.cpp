// Every published total of b12x, FlashInfer and vLLM's Marlin path, and what those systems refuse.
#include "fourfold/reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "fourfold/error.h"
#include "plan/reference/b12x.h"
#include "plan/reference/flashinfer.h"
#include "plan/reference/marlin.h"
#include "plan/reference/request.h"
#include "plan/reference/route_blocks.h"
#include "random_caps.h"

namespace fourfold {
namespace {

constexpr const char* kGlm = " k8 e160 h6144 i512 nvfp4 bf16 silu";

Device gpu(int multiprocessors) {
  Device device = device_preset("rtx-pro-6000");
  device.multiprocessors = multiprocessors;
  return device;
}

Caps caps_of(const std::string& problem) { return parse_problem(problem).caps; }

ReferenceBill glm(const std::string& request, std::int64_t tokens, int multiprocessors = 188) {
  return reference_bill(request, caps_of("t" + std::to_string(tokens) + kGlm), gpu(multiprocessors));
}

std::uint64_t named(const ReferenceBill& bill, const std::string& name) {
  for (const auto& [key, bytes] : bill.totals)
    if (key == name) return bytes;
  ADD_FAILURE() << bill.system << " has no " << name;
  return 0;
}

std::uint64_t segment(const ReferenceBill& bill, const std::string& name) {
  for (const ReferenceSegment& entry : bill.segments)
    if (entry.name == name) return entry.bytes;
  return 0;
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

TEST(B12x, TheDecodePlanThatStartedIt) {
  const ReferenceBill chosen = glm("b12x", 64), sweep = glm("b12x:block=64", 64);
  EXPECT_EQ(chosen.total_bytes, 31'491'908u);
  EXPECT_EQ(chosen.blocks, std::vector<std::int64_t>{8});
  EXPECT_EQ(sweep.total_bytes, 99'553'972u);
  EXPECT_EQ(sweep.total_bytes - chosen.total_bytes, 68'062'064u);
  EXPECT_NEAR(mib(sweep.total_bytes - chosen.total_bytes), 64.909, 0.0005);
  EXPECT_EQ(named(chosen, "full_sweep_bytes"), 99'553'972u);
}

struct Total {
  std::int64_t tokens;
  std::uint64_t block8, block64, unpinned;
};

TEST(B12x, TrellisTotals) {
  const Total rows[] = {
      {32, 34'102'552, 102'164'728, 34'102'552},           {64, 45'651'352, 113'713'416, 45'651'352},
      {512, 192'654'488, 266'613'224, 217'309'912},        {1536, 528'661'656, 602'616'808, 602'616'808},
      {3072, 1'032'672'408, 1'106'622'184, 1'106'622'184}, {8192, 2'712'708'248, 2'786'640'104, 2'786'640'104}};
  for (const Total& row : rows) {
    EXPECT_EQ(glm("b12x-trellis:block=8", row.tokens).total_bytes, row.block8) << row.tokens;
    EXPECT_EQ(glm("b12x-trellis:block=64", row.tokens).total_bytes, row.block64) << row.tokens;
    EXPECT_EQ(glm("b12x-trellis", row.tokens).total_bytes, row.unpinned) << row.tokens;
  }
  EXPECT_EQ(glm("b12x-trellis", 512).blocks, std::vector<std::int64_t>{32});
}

TEST(B12x, TrellisCoreByCapacity) {
  const std::map<std::int64_t, double> block64{{128, 130.42},   {512, 254.06},   {1024, 414.07}, {1536, 574.09},
                                               {3072, 1054.14}, {4096, 1374.17}, {8192, 2654.30}};
  for (const auto& [tokens, expected] : block64)
    EXPECT_NEAR(mib(named(glm("b12x-trellis:block=64", tokens), "core_bytes")), expected, 0.005) << tokens;
  EXPECT_NEAR(mib(named(glm("b12x-trellis:block=8", 32), "core_bytes")), 32.51, 0.005);
  EXPECT_NEAR(mib(named(glm("b12x-trellis:block=8", 64), "core_bytes")), 43.51, 0.005);
  EXPECT_NEAR(mib(named(glm("b12x-trellis", 4096), "core_bytes")) - mib(named(glm("b12x-trellis", 3072), "core_bytes")),
              320.03, 0.005);
  // A decode plan and a prefill plan together.
  EXPECT_NEAR(mib(named(glm("b12x-trellis", 64), "core_bytes") + named(glm("b12x-trellis", 3072), "core_bytes")),
              1097.65, 0.005);
}

TEST(B12x, Nvfp4Totals) {
  const Total rows[] = {{32, 27'020'996, 95'083'172, 27'020'996},      {64, 31'491'908, 99'553'972, 31'491'908},
                        {512, 79'404'612, 153'363'348, 104'061'508},   {1536, 243'463'748, 317'417'108, 317'424'196},
                        {3072, 462'280'260, 536'226'452, 536'240'708}, {8192, 900'765'252, 974'697'108, 974'725'700}};
  for (const char* format : {"nvfp4", "mxfp4"})
    for (const char* layout : {"", ":layout=native", ":layout=packed"})
      for (const Total& row : rows) {
        const Caps caps = caps_of(fmt::format("t{} k8 e160 h6144 i512 {} bf16 silu", row.tokens, format));
        const auto total = [&](const char* block) {
          return reference_bill(std::string("b12x") + layout + block, caps, gpu(188)).total_bytes;
        };
        EXPECT_EQ(total(":block=8"), row.block8) << format << layout << " " << row.tokens;
        EXPECT_EQ(total(":block=64"), row.block64) << format << layout << " " << row.tokens;
        EXPECT_EQ(total(""), row.unpinned) << format << layout << " " << row.tokens;
      }
}

struct Parts {
  const char* request;
  std::int64_t tokens;
  double cache13, cache2, gate_up_plane, down_plane, rotation, out, indices;  // MiB
};

TEST(B12x, EveryComponentOfThePublishedBreakdown) {
  const Parts rows[] = {{"b12x-trellis:block=8", 32, 3, .25, 10.75, 11.75, 3, .75, .005},
                        {"b12x-trellis:block=64", 32, 3, .25, 40.375, 47, 3, .75, .039},
                        {"b12x-trellis:block=8", 64, 6, .5, 11.75, 11.75, 6, 1.5, .006},
                        {"b12x-trellis:block=64", 64, 6, .5, 41.375, 47, 6, 1.5, .040},
                        {"b12x-trellis:block=8", 512, 48, 4, 11.75, 11.75, 48, 12, .020},
                        {"b12x-trellis:block=32", 512, 48, 4, 23.5, 23.5, 48, 12, .035},
                        {"b12x-trellis:block=64", 512, 48, 4, 47, 47, 48, 12, .054},
                        {"b12x-trellis:block=64", 1536, 144, 12, 47, 47, 144, 36, .085},
                        {"b12x-trellis:block=64", 3072, 288, 24, 47, 47, 288, 72, .132},
                        {"b12x-trellis:block=64", 8192, 768, 64, 47, 47, 768, 192, .289},
                        {"b12x:block=8", 32, 3, .25, 10.75, 11.75, 0, 0, .005},
                        {"b12x:block=8", 64, 6, .5, 11.75, 11.75, 0, 0, .006},
                        {"b12x:block=64", 64, 6, .5, 41.375, 47, 0, 0, .040},
                        {"b12x:block=8", 512, 48, 4, 11.75, 11.75, 0, 0, .020},
                        {"b12x", 512, 48, 4, 23.5, 23.5, 0, 0, .035},
                        {"b12x:block=64", 3072, 384, 32, 47, 47, 0, 0, .164},
                        {"b12x:block=64", 8192, 768, 64, 47, 47, 0, 0, .289}};
  for (const Parts& row : rows) {
    const ReferenceBill bill = glm(row.request, row.tokens);
    const std::string what = std::string(row.request) + " " + std::to_string(row.tokens);
    EXPECT_EQ(mib(segment(bill, "intermediate_cache13")), row.cache13) << what;
    EXPECT_EQ(mib(segment(bill, "intermediate_cache2")), row.cache2) << what;
    EXPECT_EQ(mib(segment(bill, "fc1_c_tmp")), row.gate_up_plane) << what;
    EXPECT_EQ(mib(segment(bill, "fc2_c_tmp")), row.down_plane) << what;
    EXPECT_EQ(mib(segment(bill, "rotation_a_gate")), row.rotation) << what;
    EXPECT_EQ(mib(segment(bill, "rotation_a_up")), row.rotation) << what;
    EXPECT_EQ(mib(segment(bill, "full_rotation_output")), row.out) << what;
    EXPECT_NEAR(mib(segment(bill, "packed_route_indices")), row.indices, .001) << what;  // a unit of what was published
    EXPECT_LE(mib(segment(bill, "block_expert_ids")), .033) << what;
    EXPECT_EQ(segment(bill, "expert_offsets"), 644u) << what;
    EXPECT_EQ(segment(bill, "packed_route_count"), 4u) << what;
    if (row.rotation > 0) {
      EXPECT_EQ(segment(bill, "expert_counts"), 640u) << what;
      EXPECT_EQ(segment(bill, "kernel_workspace"), 3016u) << what;
    }
  }
}

TEST(B12x, RoutersPart) {
  const std::map<std::int64_t, std::uint64_t> rows{{32, 13'312},    {64, 26'624},      {512, 212'992},
                                                   {1536, 638'976}, {3072, 1'277'952}, {8192, 3'407'872}};
  for (const auto& [tokens, expected] : rows) {
    const ReferenceBill bill = glm("b12x-trellis", tokens);
    EXPECT_EQ(bill.total_bytes - named(bill, "core_bytes"), expected) << tokens;
  }
}

TEST(B12x, PlanesOfAnotherDevice) {
  EXPECT_EQ(mib(segment(glm("b12x:block=64", 512, 132), "fc2_c_tmp")), 33);
  EXPECT_EQ(mib(segment(glm("b12x:block=8", 512, 132), "fc2_c_tmp")), 8.25);
}

TEST(B12x, BlocksAreChosenByMeanFill) {
  const std::map<std::int64_t, std::int64_t> first{{1, 8},    {143, 8},  {144, 16}, {287, 16}, {288, 32},
                                                   {575, 32}, {576, 48}, {863, 48}, {864, 64}, {100000, 64}};
  for (const auto& [tokens, block] : first) EXPECT_EQ(reference::select_block(tokens, 8, 160), block) << tokens;
  EXPECT_EQ(reference::select_block(115, 8, 128), 8);
  EXPECT_EQ(reference::select_block(116, 8, 128), 16);
}

TEST(B12x, ThePlannerAndTheBucketDisagreedAt3072) {
  EXPECT_EQ(reference::b12x_bucket(3072), 4096);
  const auto blocks = [](std::int64_t tokens) { return (reference::route_slots(tokens * 8, 64, 160) + 63) / 64; };
  EXPECT_EQ(blocks(3072), 542);
  EXPECT_EQ(blocks(4096), 670);
  EXPECT_EQ(glm("b12x", 3072).capacity_tokens, 4096);
  EXPECT_EQ(glm("b12x-trellis", 3072).capacity_tokens, 3072);
  EXPECT_EQ(segment(glm("b12x:block=64", 3072), "block_expert_ids"), 670u * 4);
  EXPECT_EQ(segment(glm("b12x-trellis", 3072), "block_expert_ids"), 542u * 4);
}

TEST(B12x, Buckets) {
  const std::map<std::int64_t, std::int64_t> rows{{1, 1}, {8, 8}, {9, 16}, {3072, 4096}, {4097, 8192}};
  for (const auto& [tokens, bucket] : rows) EXPECT_EQ(reference::b12x_bucket(tokens), bucket);
}

// Token count, bucket, route blocks of the captured launch; the last ones with the prefill plan's block of 64.
TEST(B12x, CaptureTable) {
  const auto blocks = [](std::int64_t tokens, std::int64_t block) {
    const std::int64_t slots = reference::route_slots(reference::b12x_bucket(tokens) * 8, block, 160);
    return (slots + block - 1) / block;
  };
  EXPECT_EQ(blocks(4, 8), 32);
  EXPECT_EQ(blocks(8, 8), 64);
  for (const std::int64_t tokens : {12, 16}) EXPECT_EQ(blocks(tokens, 8), 128);
  for (const std::int64_t tokens : {20, 24, 28, 32}) EXPECT_EQ(blocks(tokens, 8), 172);
  for (const std::int64_t tokens : {36, 40, 48, 56, 64}) EXPECT_EQ(blocks(tokens, 64), 166);
}

TEST(B12x, ExpertParallel) {
  const std::map<std::int64_t, double> wide{{1, 5.126},    {8, 24.50},     {32, 27.51},    {64, 31.51},
                                            {512, 111.04}, {1536, 286.11}, {3072, 478.18}, {8192, 1118.32}};
  for (const auto& [tokens, expected] : wide) {
    const Caps caps = caps_of(fmt::format("t{} k8 e40 eg160 h6144 i2048 nvfp4 bf16 silu", tokens));
    EXPECT_NEAR(mib(reference_bill("b12x", caps, gpu(188)).total_bytes), expected, 0.005) << tokens;
  }
  const std::map<std::int64_t, double> narrow{
      {64, 30.008}, {512, 99.04}, {1536, 250.11}, {3072, 406.18}, {8192, 926.32}};
  for (const auto& [tokens, expected] : narrow) {
    const Caps caps = caps_of(fmt::format("t{} k8 e160 eg160 h6144 i512 nvfp4 bf16 silu", tokens));
    EXPECT_NEAR(mib(reference_bill("b12x", caps, gpu(188)).total_bytes), expected, 0.005) << tokens;
  }
}

TEST(B12x, ReachableBlocksAreThoseThatSomeCountChooses) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 400; ++round) {
    reference::B12xProblem problem;
    problem.max_tokens = log_uniform(random, 1, 4096);
    problem.top_k = log_uniform(random, 1, 22);
    problem.experts = log_uniform(random, 1, 512);
    problem.global_experts = random() % 2 ? problem.experts * static_cast<std::int64_t>(1 + random() % 8) : 0;
    problem.layout = reference::B12xProblem::Layout::packed;
    const std::int64_t packed_experts = problem.global_experts > 0 ? problem.global_experts : problem.experts;
    std::set<std::int64_t> chosen;
    for (std::int64_t tokens = 1; tokens <= reference::b12x_capacity(problem); ++tokens)
      chosen.insert(reference::select_block(tokens, problem.top_k, packed_experts));
    const std::vector<std::int64_t> blocks = reference::b12x_blocks(problem);
    // The planner takes the whole range between the smallest and the largest.
    EXPECT_EQ(*chosen.begin(), blocks.front());
    EXPECT_EQ(*chosen.rbegin(), blocks.back());
    for (const std::int64_t block : chosen)
      EXPECT_NE(std::find(blocks.begin(), blocks.end(), block), blocks.end()) << block;
  }
}

TEST(B12x, GrowsWithTokensTopKAndBlock) {
  std::mt19937_64 random(22);
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t tokens = log_uniform(random, 1, 20000), top_k = log_uniform(random, 1, 22);
    const std::string system = random() % 2 ? "b12x" : "b12x-trellis";
    const auto bytes = [&](std::int64_t t, std::int64_t k, int block) {
      const Caps caps = caps_of(fmt::format("t{} k{} e160 h6144 i512", t, k));
      return reference_bill(fmt::format("{}:block={}", system, block), caps, gpu(188)).total_bytes;
    };
    EXPECT_LE(bytes(tokens, top_k, 64), bytes(tokens + 1, top_k, 64));
    EXPECT_LE(bytes(tokens, top_k, 64), bytes(tokens, top_k + 1, 64));
    EXPECT_LE(bytes(tokens, top_k, 16), bytes(tokens, top_k, 32));
  }
}

// The reduction planes saturate at S x 4 x block x 256 values each: 94 MiB with block 64 that no capacity shrinks.
TEST(B12x, AFloorThatCapacityCannotShrink) {
  for (const std::int64_t tokens : {512, 1024, 3072, 8192, 65536})
    for (const char* system : {"b12x:block=64", "b12x-trellis:block=64"}) {
      const ReferenceBill bill = glm(system, tokens);
      EXPECT_EQ(segment(bill, "fc1_c_tmp") + segment(bill, "fc2_c_tmp"), 94u << 20) << system << " " << tokens;
      EXPECT_EQ(segment(bill, "fc2_c_tmp"), 188u * 4 * 64 * 256 * 4);
    }
}

// What --fit searches: the largest block never falls, and while it stays the bytes grow. Where it rises they can fall.
TEST(Reference, EveryBillGrowsWithTokensWhileItsBlockStays) {
  std::mt19937_64 random(24);
  int compared = 0, same = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t tokens = log_uniform(random, 1, 40000), more = tokens + log_uniform(random, 1, 2000);
    const std::int64_t top_k = log_uniform(random, 1, 22), experts = log_uniform(random, top_k, 512);
    for (const char* system : {"b12x", "b12x-trellis", "flashinfer", "flashinfer:tile=8:tactics=3", "marlin"}) {
      const auto bill = [&](std::int64_t count) {
        return reference_bill(system, caps_of(fmt::format("t{} k{} e{} h2048 i768", count, top_k, experts)), gpu(188));
      };
      const ReferenceBill few = bill(tokens), many = bill(more);
      ASSERT_EQ(few.refused, "") << system;
      ASSERT_LE(few.blocks.back(), many.blocks.back()) << system;
      ++compared;
      if (few.blocks.back() != many.blocks.back()) continue;
      ++same;
      ASSERT_LE(few.total_bytes, many.total_bytes)
          << system << " t" << tokens << " against t" << more << " k" << top_k << " e" << experts;
    }
  }
  EXPECT_GT(same, 2000);
  EXPECT_GT(compared - same, 500);
}

TEST(FlashInfer, TheRunnerThatRanOutOfMemory) {
  const Caps caps = caps_of("t16384 k22 e128 h1024 i2688 nvfp4 bf16 silu");
  EXPECT_EQ(reference::flashinfer_rows(16384 * 22, 128, 128), 376'704);
  const ReferenceBill one = reference_bill("flashinfer", caps, gpu(148));
  EXPECT_EQ(segment(one, "permuted_activations"), 376'704u * 1024 * 2);
  EXPECT_NEAR(mib(segment(one, "permuted_activations")), 735.75, 0.005);
  EXPECT_NEAR(mib(segment(one, "activated_intermediate")), 1931.34, 0.005);
  EXPECT_EQ(one.total_bytes, 376'704u * (1024 + 2688) * 2);
  EXPECT_EQ(reference_bill("flashinfer:tile=128:tactics=6", caps, gpu(148)).total_bytes, 6 * one.total_bytes);
  std::uint64_t all = 0;
  for (const int tile : {8, 16, 32, 64, 128, 192})
    all += reference_bill(fmt::format("flashinfer:tile={}", tile), caps, gpu(148)).total_bytes;
  EXPECT_EQ(named(one, "retained_bytes"), all);
}

TEST(Marlin, TheTableOfGlmOn132Multiprocessors) {
  struct Column {
    std::int64_t tokens;
    std::uint64_t wide, activated, scratch, ids, blocks, sums, locks, direct, provisioned;
  };
  const Column columns[] = {
      {64, 6'291'456, 524'288, 8'650'752, 6'528, 816, 648, 2'112, 15'476'600, 21'243'768},
      {3072, 301'989'888, 25'165'824, 34'603'008, 138'624, 2'168, 648, 2'112, 361'902'272, 638'726'336}};
  for (const Column& column : columns) {
    const ReferenceBill bill = glm("marlin", column.tokens, 132);
    EXPECT_EQ(segment(bill, "intermediate_cache13"), column.wide);
    EXPECT_EQ(segment(bill, "intermediate_cache2"), column.activated);
    EXPECT_EQ(segment(bill, "c_tmp"), column.scratch);
    EXPECT_EQ(segment(bill, "sorted_token_ids"), column.ids);
    EXPECT_EQ(segment(bill, "expert_ids"), column.blocks);
    EXPECT_EQ(segment(bill, "cumsum") + segment(bill, "num_tokens_post_padded"), column.sums);
    EXPECT_EQ(segment(bill, "locks"), column.locks);
    EXPECT_EQ(bill.total_bytes, column.direct);
    EXPECT_EQ(named(bill, "provisioned_bytes"), column.provisioned);
    const reference::MarlinSizes sizes =
        reference::marlin_sizes(caps_of("t" + std::to_string(column.tokens) + kGlm), 132);
    EXPECT_EQ(sizes.gate_up_words * 4, static_cast<std::int64_t>(column.scratch));
    EXPECT_EQ(sizes.down_words * 4, static_cast<std::int64_t>(column.scratch));
  }
}

TEST(Reference, OurArenaIsSmallerThanEachOfThem) {
  for (const std::int64_t tokens : {64, 3072}) {
    const Caps caps = caps_of("t" + std::to_string(tokens) + kGlm);
    for (const char* name : {"h200", "rtx-pro-6000"}) {
      const Device device = device_preset(name);
      const std::uint64_t ours = required_workspace_bytes(caps, device);
      for (const char* system : {"b12x", "b12x-trellis", "marlin", "flashinfer"}) {
        const ReferenceBill bill = reference_bill(system, caps, device);
        ASSERT_EQ(bill.refused, "");
        EXPECT_LT(ours, bill.total_bytes) << system << " at " << tokens << " on " << name;
      }
    }
  }
  const Caps large = caps_of("t16384 k22 e128 h1024 i2688 nvfp4 bf16 silu");
  EXPECT_LT(required_workspace_bytes(large, device_preset("b200")),
            reference_bill("flashinfer", large, device_preset("b200")).total_bytes);
}

struct Refusal {
  const char* system;
  const char* problem;
  const char* says;
};

TEST(Reference, ProblemsAreRefusedInEachSystemsTerms) {
  const Refusal rows[] = {{"b12x", "t4 k2 e4 h128 i128 int4 bf16 silu", "source_format int4"},
                          {"b12x", "t4 k2 e4 h128 i128 nvfp4 f32 silu", "params_dtype F32"},
                          {"b12x", "t4 k2 e4 h128 i128 nvfp4 bf16 silu bias", "bias"},
                          {"b12x", "t4 k2 e4 h128 i128 nvfp4 bf16 gelu_tanh", "activation gelu_tanh"},
                          {"b12x", "t4 k2 e4 h136 i128 nvfp4 bf16 silu", "source_native"},
                          {"b12x", "t4 k2 e4 eg2 h128 i128 nvfp4 bf16 silu", "global_num_experts 2"},
                          {"b12x", "t4 k2 e4 eg8 h128 i128 nvfp4 f16 silu", "ep_moe takes bf16 only"},
                          {"b12x:layout=packed", "t4 k2 e4 h2880 i2880 mxfp4 bf16 silu", "no tile"},
                          {"b12x-trellis", "t4 k2 e4 h192 i128", "multiples of 128"},
                          {"b12x-trellis", "t4 k2 e4 h128 i128 nvfp4 bf16 relu2", "activation relu2"},
                          {"b12x-trellis", "t4 k2 e4 h128 i128 limit=7", "swiglu_limit"},
                          {"b12x-trellis", "t4 k2 e4 h128 i128 on_input", "apply_router_weight_on_input"},
                          {"b12x-trellis", "t4 k2 e4 eg8 h128 i128", "ep_moe"},
                          {"flashinfer", "t4 k2 e4 h128 i128 mxfp4 bf16 silu", "NVFP4 weights only, not mxfp4"},
                          {"flashinfer", "t4 k2 e4 h128 i128 nvfp4 f16 silu", "output dtype F16"},
                          {"flashinfer", "t4 k2 e4 h128 i128 nvfp4 bf16 silu bias", "bias"},
                          {"marlin", "t4 k2 e4 h128 i128 nvfp4 bf16 situ", "activation situ"},
                          {"marlin", "t4 k2 e4 h128 i72 nvfp4 bf16 relu2", "min_thread_n is 64"},
                          {"marlin", "t4 k2 e4 h128 i96 nvfp4 bf16 silu", "min_thread_k is 64"},
                          {"marlin", "t4 k2 e4 h128 i128 exl3 b3 bf16 silu", "exl3"}};
  for (const Refusal& row : rows) {
    const ReferenceBill bill = reference_bill(row.system, caps_of(row.problem), gpu(188));
    EXPECT_NE(bill.refused.find(row.says), std::string::npos)
        << row.system << " " << row.problem << ": " << bill.refused;
    EXPECT_EQ(bill.total_bytes, 0u);
    EXPECT_TRUE(bill.segments.empty());
  }
}

TEST(Reference, ADeviceWithoutMultiprocessorsIsSaid) {
  for (const char* system : {"b12x", "b12x-trellis", "marlin"})
    EXPECT_NE(reference_bill(system, caps_of("t4 k2 e4 h128 i128"), device_preset("cpu")).refused.find("--sms"),
              std::string::npos);
}

TEST(Reference, SizesThatLeave63BitsAreRefused) {
  Caps caps = caps_of("t2147483647 k64 e4096 h1048576 i1048576");
  for (const std::string& system : reference_systems()) {
    const ReferenceBill bill = reference_bill(system, caps, gpu(188));
    EXPECT_TRUE(bill.refused.empty() || bill.refused.find("2^63") != std::string::npos) << bill.refused;
  }
}

TEST(Reference, Exl3ProblemsArePricedAsTrellis) {
  const Caps caps = caps_of("t3072 k8 e160 h6144 i512 exl3 b3 bf16 silu");
  EXPECT_EQ(reference_bill("b12x", caps, gpu(188)).total_bytes, 1'106'622'184u);
  EXPECT_EQ(reference_bill("b12x-trellis:bits=3", caps, gpu(188)).total_bytes, 1'106'622'184u);
  EXPECT_FALSE(can_implement(caps, device_preset("h200")));
  EXPECT_NE(can_implement(caps, device_preset("h200")).reason.find("exl3"), std::string::npos);
}

TEST(Reference, RequestsAreCheckedWordByWord) {
  const std::pair<const char*, const char*> rows[] = {{"cutlass", "known: b12x, b12x-trellis, flashinfer, marlin"},
                                                      {"", "known: b12x"},
                                                      {"b12x:block=12", "8, 16, 32, 48, 64"},
                                                      {"b12x:block=8x", "8, 16, 32, 48, 64"},
                                                      {"b12x:block", "no value"},
                                                      {"b12x:block=", "no value"},
                                                      {"b12x:tile=8", "no option \"tile\""},
                                                      {"b12x:block=8:block=16", "twice"},
                                                      {"b12x-trellis:bits=2", "3, 4, 5, 6"},
                                                      {"b12x-trellis:layout=native", "no option"},
                                                      {"flashinfer:tile=7", "8, 16, 32, 64, 128, 192"},
                                                      {"flashinfer:tactics=7", "1, 2, 3, 4, 5, 6"},
                                                      {"marlin:block=8", "it has none"},
                                                      {"b12x:", "no value"}};
  for (const auto& [request, says] : rows) {
    try {
      reference_bill(request, caps_of("t4 k2 e4 h128 i128"), gpu(188));
      ADD_FAILURE() << request;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage) << request;
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << request << ": " << error.what();
    }
  }
}

TEST(Reference, EverySystemThatIsListedIsPriced) {
  for (const std::string& system : reference_systems()) {
    const ReferenceBill bill = reference_bill(system, caps_of("t64 k8 e160 h6144 i512"), gpu(188));
    EXPECT_EQ(bill.refused, "") << system;
    EXPECT_EQ(bill.system, system);
    EXPECT_GT(bill.total_bytes, 0u) << system;
  }
}

}  // namespace
}  // namespace fourfold
