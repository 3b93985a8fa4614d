// Routes: distributions, dead and foreign ids, expert maps, weights of every kind (BL-12, 13, 14).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "oracle/moe_oracle.h"
#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;
using support::Bytes;
using support::MoeLayer;

namespace {

constexpr std::int64_t kExperts = 7, kTopK = 2;

struct Distribution {
  const char* name;
  std::function<std::int64_t(std::int64_t token, std::int64_t slot, std::int64_t tokens)> id;
};

const std::vector<Distribution>& distributions() {
  static const std::vector<Distribution> all = {
      {"only the first expert", [](auto, auto, auto) { return 0; }},
      {"only a middle expert", [](auto, auto, auto) { return 3; }},
      {"only the last expert", [](auto, auto, auto) { return kExperts - 1; }},
      {"two experts", [](auto, auto slot, auto) { return slot ? 5 : 1; }},
      {"sorted",
       [](auto token, auto slot, auto tokens) { return (token * kTopK + slot) * kExperts / (tokens * kTopK); }},
      {"reversed", [](auto token, auto slot,
                      auto tokens) { return kExperts - 1 - (token * kTopK + slot) * kExperts / (tokens * kTopK); }},
      {"every second expert empty", [](auto token, auto slot, auto) { return (token + slot) * 2 % 8 % kExperts; }},
      {"all dead", [](auto, auto, auto) { return -1; }},
      {"last row dead",
       [](auto token, auto slot, auto tokens) { return token == tokens - 1 ? -1 : (token + slot) % kExperts; }},
      {"first slot dead", [](auto token, auto slot, auto) { return slot == 0 ? -1 : token % kExperts; }},
  };
  return all;
}

std::vector<std::int64_t> ids_of(const Distribution& distribution, std::int64_t tokens) {
  std::vector<std::int64_t> ids;
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t slot = 0; slot < kTopK; ++slot) ids.push_back(distribution.id(token, slot, tokens));
  return ids;
}

bool row_is_zero(const Bytes& out, const Caps& caps, std::int64_t row) {
  const std::size_t bytes = caps.hidden * dtype_bits(caps.activation_dtype) / 8;
  return std::all_of(out.begin() + row * bytes, out.begin() + (row + 1) * bytes,
                     [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

TEST(Routing, EveryDistributionAtEveryCount) {
  const Caps caps = support::caps_of("t519 k2 e7 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  for (std::int64_t tokens : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 519}) {
    RandomCall call = random_call(caps, tokens, tokens);
    for (const Distribution& distribution : distributions()) {
      support::set_ids(call, ids_of(distribution, tokens));
      EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors)))
          << distribution.name << ", " << tokens << " tokens";
    }
  }
}

// Blocks of experts' tokens: one less, exactly, one more than any block size, in one call.
TEST(Routing, RoutesAroundBlockSizes) {
  for (std::int64_t block : {2, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
    const std::int64_t tokens = 3 * block;
    const Caps caps = support::caps_of("t" + std::to_string(tokens) + " k1 e5 h64 i32 nvfp4 bf16 silu");
    std::vector<std::int64_t> ids(block - 1, 4);
    ids.insert(ids.end(), block, 0);
    ids.insert(ids.end(), block + 1, 2);
    const RandomExperts experts(caps, block);
    RandomCall call = random_call(caps, tokens, block);
    support::set_ids(call, ids);
    for (const auto& backend : support::backends()) {
      const MoeLayer layer(caps, experts.stacked(), *backend);
      EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors)))
          << "block " << block << " on " << cpu_isa_name(backend->device().isa);
    }
  }
}

TEST(Routing, RowsWithoutALiveExpertAreZeros) {
  const Caps caps = support::caps_of("t9 k2 e7 h64 i32 nvfp4 bf16 silu bias");
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  RandomCall call = random_call(caps, 9, 1);
  std::vector<std::int64_t> ids = support::get_ids(call);
  for (std::int64_t row : {0, 4, 8}) ids[row * 2] = ids[row * 2 + 1] = -1;
  support::set_ids(call, ids);
  const Bytes out = layer.run(call.tensors);
  for (std::int64_t row = 0; row < 9; ++row) EXPECT_EQ(row_is_zero(out, caps, row), row % 4 == 0) << row;
}

TEST(Routing, ForeignIdsAddZeroAndAreCounted) {
  const Caps caps = support::caps_of("t64 k2 e7 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  constexpr std::int64_t kForeign[] = {7,
                                       -2,
                                       std::numeric_limits<std::int32_t>::max(),
                                       std::numeric_limits<std::int32_t>::min(),
                                       (1ll << 32) + 3,
                                       -(1ll << 32) + 3,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min()};
  for (const auto& backend : support::backends()) {
    const MoeLayer layer(caps, experts.stacked(), *backend);
    for (std::int64_t tokens : {1, 8, 9, 64}) {
      RandomCall call = random_call(caps, tokens, tokens, {.ids_are_64_bit = true});
      std::vector<std::int64_t> ids = support::get_ids(call), dead = ids;
      std::uint32_t planted = 0;
      for (std::size_t i = 0; i < ids.size(); i += 3, ++planted) {
        ids[i] = kForeign[i / 3 % std::size(kForeign)];
        dead[i] = -1;
      }
      support::set_ids(call, ids);
      std::uint32_t counted = 100;
      const Bytes foreign = layer.run(call.tensors, &counted);
      EXPECT_EQ(counted, 100 + planted) << "added, never reset";
      EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, foreign));
      support::set_ids(call, dead);
      EXPECT_EQ(layer.run(call.tensors, &counted), foreign) << "a foreign id is as good as -1";
      EXPECT_EQ(counted, 100 + planted) << "-1 is not counted";
    }
  }
}

TEST(Routing, BothIdWidthsGiveTheSameBits) {
  const Caps caps = support::caps_of("t33 k3 e7 h64 i32 nvfp4 bf16 silu eg9");
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  for (std::int64_t tokens : {1, 8, 33}) {
    const RandomCall narrow = random_call(caps, tokens, 3, {.plant_dead_ids = true});
    const RandomCall wide = support::with_id_width(narrow, true);
    EXPECT_EQ(layer.run(narrow.tensors), layer.run(wide.tensors)) << tokens;
  }
}

TEST(Routing, DuplicateIdsAddUp) {
  const Caps caps = support::caps_of("t4 k8 e7 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  RandomCall call = random_call(caps, 4, 1);
  support::set_ids(call, std::vector<std::int64_t>(32, 3));
  const MoeLayer layer(caps, experts.stacked());
  EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors)));
}

TEST(Routing, WeightsOfEveryKind) {
  const Caps caps = support::caps_of("t8 k2 e7 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& backend : support::backends()) {
    const MoeLayer layer(caps, experts.stacked(), *backend);
    for (const auto& pair : std::vector<std::pair<float, float>>{{0.5f, 0.5f},
                                                                 {1.25f, 1.25f},
                                                                 {0, 0},
                                                                 {0, 1},
                                                                 {-0.0f, 1},
                                                                 {-1, 0.5f},
                                                                 {1e-30f, 1},
                                                                 {inf, 1},
                                                                 {-inf, inf}}) {
      RandomCall call = random_call(caps, 8, 2);
      for (std::size_t i = 0; i < call.topk_weights.size(); ++i)
        call.topk_weights[i] = i % 2 ? pair.second : pair.first;
      EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors)))
          << pair.first << ", " << pair.second;
    }
  }
}

// A rank holds some experts; the sum over ranks is the whole (each rank rounds once, so do we when we add).
TEST(ExpertMap, RanksSumToTheWhole) {
  const Caps whole = support::caps_of("t17 k3 e8 h64 i32 nvfp4 f32 silu bias");
  const RandomExperts experts(whole, 1);
  const RandomCall call = random_call(whole, 17, 2, {.plant_dead_ids = true});
  const oracle::Truth truth = oracle::evaluate(whole, experts.stacked(), call.tensors);
  for (std::int64_t ranks : {1, 2, 4})
    for (bool round_robin : {false, true}) {
      std::vector<float> sum(17 * 64, 0);
      const std::int64_t local = 8 / ranks;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Caps caps = whole;
        caps.experts = local;
        caps.global_experts = 8;
        std::vector<std::int32_t> map(8, -1);
        StackedExperts part = experts.stacked();
        std::vector<std::vector<std::byte>> storage;
        const auto take = [&](ConstTensorView& view) {
          if (view.absent()) return;
          const std::int64_t one = view.bytes() / 8;
          auto& bytes = storage.emplace_back(local * one);
          for (std::int64_t i = 0; i < local; ++i)
            std::memcpy(bytes.data() + i * one,
                        view.as<std::byte>() + (round_robin ? i * ranks + rank : rank * local + i) * one, one);
          view.data = bytes.data();
          view.shape[0] = local;
        };
        for (ConstTensorView* view :
             {&part.gate_up_codes, &part.gate_up_scales, &part.gate_up_global, &part.gate_up_bias, &part.down_codes,
              &part.down_scales, &part.down_global, &part.down_bias})
          take(*view);
        for (std::int64_t i = 0; i < local; ++i) map[round_robin ? i * ranks + rank : rank * local + i] = i;
        MoeTensors inputs = call.tensors;
        inputs.expert_map = ConstTensorView(map.data(), DType::i32, {8});
        const Bytes out = MoeLayer(caps, part).run(inputs);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += support::element(out, DType::f32, i);
      }
      const oracle::Difference difference =
          oracle::difference(ConstTensorView(sum.data(), DType::f32, {17, 64}), truth);
      EXPECT_EQ(difference.compared, 17 * 64);
      EXPECT_EQ(difference.wrong, 0) << ranks << " ranks, worst " << difference.worst;
    }
}

// The rows of bug-log BL-12: a rank that holds experts 0..3 of 8.
TEST(ExpertMap, TokensWithNoLocalExpertAreExactlyZero) {
  const Caps caps = support::caps_of("t4 k2 e4 h64 i32 nvfp4 bf16 silu bias eg8");
  const RandomExperts experts(caps, 1);
  RandomCall call = random_call(caps, 4, 1);
  for (std::int32_t i = 0; i < 8; ++i) call.expert_map[i] = i < 4 ? i : -1;
  support::set_ids(call, {-1, -1, 0, -1, 7, 3, 6, 5});
  std::uint32_t invalid = 0;
  const Bytes out = MoeLayer(caps, experts.stacked()).run(call.tensors, &invalid);
  EXPECT_EQ(invalid, 0u) << "another rank's expert is not out of range";
  EXPECT_TRUE(row_is_zero(out, caps, 0));
  EXPECT_FALSE(row_is_zero(out, caps, 1));
  EXPECT_FALSE(row_is_zero(out, caps, 2));
  EXPECT_TRUE(row_is_zero(out, caps, 3));
  EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, out));
}

TEST(ExpertMap, OnlyOneLocalAndNoneLocal) {
  const Caps caps = support::caps_of("t9 k8 e1 h64 i32 nvfp4 bf16 silu eg160");
  const RandomExperts experts(caps, 1);
  RandomCall call = random_call(caps, 9, 1);
  const MoeLayer layer(caps, experts.stacked());
  EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors)));
  std::fill(call.expert_map.begin(), call.expert_map.end(), -1);
  const Bytes out = layer.run(call.tensors);
  for (std::int64_t row = 0; row < 9; ++row) EXPECT_TRUE(row_is_zero(out, caps, row));
}

TEST(ExpertMap, TwoIdsMayShareOneExpertAndTheMapMayBeShorterThanTheExperts) {
  for (const char* text : {"t9 k2 e4 h64 i32 nvfp4 bf16 silu eg8", "t9 k2 e4 h64 i32 nvfp4 bf16 silu eg3"}) {
    const Caps caps = support::caps_of(text);
    const RandomExperts experts(caps, 1);
    RandomCall call = random_call(caps, 9, 1);
    for (std::size_t i = 0; i < call.expert_map.size(); ++i) call.expert_map[i] = static_cast<std::int32_t>(i % 4);
    const MoeLayer layer(caps, experts.stacked());
    EXPECT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, layer.run(call.tensors)));
  }
}

TEST(ExpertMap, ABadEntryAddsZeroAndIsCounted) {
  const Caps caps = support::caps_of("t6 k1 e4 h64 i32 nvfp4 bf16 silu eg6");
  const RandomExperts experts(caps, 1);
  RandomCall call = random_call(caps, 6, 1);
  support::set_ids(call, {0, 1, 2, 3, 4, 5});
  call.expert_map = {0, 4, -2, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(), 3};
  call.tensors.expert_map.data = call.expert_map.data();
  std::uint32_t invalid = 0;
  const Bytes out = MoeLayer(caps, experts.stacked()).run(call.tensors, &invalid);
  EXPECT_EQ(invalid, 4u);
  for (std::int64_t row = 0; row < 6; ++row) EXPECT_EQ(row_is_zero(out, caps, row), row > 0 && row < 5) << row;
}

TEST(Routing, NoTokensSucceedAndTouchNothing) {
  for (std::int64_t max_tokens : {0, 8}) {
    Caps caps = support::caps_of("t8 k2 e7 h64 i32 nvfp4 bf16 silu");
    caps.max_tokens = max_tokens;
    const RandomExperts experts(caps, 1);
    const MoeLayer layer(caps, experts.stacked());
    MoeTensors none;
    none.x = ConstTensorView(nullptr, DType::bf16, {0, 64});
    none.topk_ids = ConstTensorView(nullptr, DType::i32, {0, 2});
    none.topk_weights = ConstTensorView(nullptr, DType::f32, {0, 2});
    std::uint32_t invalid = 5;
    if (!layer.workspace().empty()) std::memset(layer.workspace().data(), 0x5a, layer.workspace().size());
    layer.run_in(none, layer.workspace(), nullptr, &invalid);
    EXPECT_EQ(invalid, 5u);
    for (std::byte b : layer.workspace()) ASSERT_EQ(b, std::byte{0x5a});
  }
}
