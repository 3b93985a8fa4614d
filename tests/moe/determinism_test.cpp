// Same inputs, same bits: repeats, slices of a batch, thread counts, threads that share weights (BL-15).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;
using support::Bytes;
using support::MoeLayer;

namespace {

constexpr const char* kProblems[] = {
    "t257 k2 e5 h72 i40 nvfp4 bf16 silu",       "t257 k2 e5 h72 i40 mxfp4 bf16 swiglu_oai bias",
    "t257 k3 e5 h64 i48 int4 g32 f16 silu",     "t257 k2 e5 h64 i48 int4 g128 zp f32 situ",
    "t257 k2 e5 h264 i24 int4 grow bf16 relu2", "t257 k2 e5 h72 i40 nvfp4 bf16 silu invariant"};

Bytes row(const Bytes& out, const Caps& caps, std::int64_t first, std::int64_t count) {
  const std::size_t bytes = caps.hidden * dtype_bits(caps.activation_dtype) / 8;
  return Bytes(out.begin() + first * bytes, out.begin() + (first + count) * bytes);
}

}  // namespace

class Determinism : public testing::TestWithParam<const char*> {};

// The CPU promises this with and without batch_invariant: one token alone, and inside 4, 16, 64 and 257.
TEST_P(Determinism, EverySliceOfABatchHasTheSameBits) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 257, 2, {.plant_dead_ids = true});
  for (const auto& backend : support::backends()) {
    const MoeLayer layer(caps, experts.stacked(), *backend);
    const Bytes whole = layer.run(call.tensors);
    ASSERT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, whole));
    for (std::int64_t slice : {1, 2, 3, 4, 5, 16, 64}) {
      std::int64_t compared = 0;
      for (std::int64_t first = 0; first < 257; first += slice) {
        const std::int64_t count = std::min(slice, 257 - first);
        ASSERT_EQ(layer.run(support::rows_of(call.tensors, first, count)), row(whole, caps, first, count))
            << "rows " << first << " .. " << first + count - 1 << " on " << cpu_isa_name(backend->device().isa);
        compared += count;
      }
      EXPECT_EQ(compared, 257);
    }
  }
}

TEST_P(Determinism, FiftyRunsGiveTheSameBits) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 99, 2);
  const MoeLayer layer(caps, experts.stacked());
  for (std::int64_t tokens : {1, 15, 35, 99}) {
    const MoeTensors inputs = support::rows_of(call.tensors, 0, tokens);
    const Bytes first = layer.run(inputs);
    for (int repeat = 1; repeat < 50; ++repeat) ASSERT_EQ(layer.run(inputs), first) << tokens << ", run " << repeat;
  }
}

TEST_P(Determinism, ThreadCountsDoNotMatter) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 65, 2);
  Bytes first;
  for (int threads : {1, 2, 3, 5}) {
    Settings settings;
    settings.threads = threads;
    const auto backend = cpu_backend(settings);
    EXPECT_EQ(backend->device().threads, threads);
    const Bytes out = MoeLayer(caps, experts.stacked(), *backend).run(call.tensors);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << threads << " threads";
  }
  EXPECT_FALSE(first.empty());
}
INSTANTIATE_TEST_SUITE_P(Problems, Determinism, testing::ValuesIn(kProblems));

TEST(Determinism, OrderOfTokensDoesNotMatter) {
  const Caps caps = support::caps_of("t65 k2 e5 h72 i40 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 65, 2);
  const MoeLayer layer(caps, experts.stacked());
  const Bytes forward = layer.run(call.tensors);
  RandomCall reversed = support::with_id_width(call, false);
  const std::vector<std::int64_t> ids = support::get_ids(call);
  std::vector<std::int64_t> backward(ids.size());
  for (std::int64_t token = 0; token < 65; ++token) {
    std::memcpy(reversed.x.data() + token * 144, call.x.data() + (64 - token) * 144, 144);
    for (int slot = 0; slot < 2; ++slot) {
      backward[token * 2 + slot] = ids[(64 - token) * 2 + slot];
      reversed.topk_weights[token * 2 + slot] = call.topk_weights[(64 - token) * 2 + slot];
    }
  }
  support::set_ids(reversed, backward);
  const Bytes out = layer.run(reversed.tensors);
  for (std::int64_t token = 0; token < 65; ++token)
    EXPECT_EQ(row(out, caps, token, 1), row(forward, caps, 64 - token, 1)) << token;
}

TEST(Sharing, TwoThreadsUseOneSetOfWeights) {
  const Caps caps = support::caps_of("t64 k2 e5 h136 i72 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  const RandomCall calls[] = {random_call(caps, 64, 2), random_call(caps, 7, 3)};
  const Bytes expected[] = {layer.run(calls[0].tensors), layer.run(calls[1].tensors)};
  int right[] = {0, 0};
  const auto work = [&](int who) {
    Workspace workspace = Workspace::allocate(layer.plan(), layer.backend());
    for (int repeat = 0; repeat < 40; ++repeat) {
      Bytes out(expected[who].size(), std::byte{0xff});
      layer.run_in(calls[who].tensors, workspace.span(), out.data());
      right[who] += out == expected[who];
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(right[0], 40);
  EXPECT_EQ(right[1], 40);
}

TEST(Sharing, APlanMadeAgainTakesTheSameWeights) {
  const Caps caps = support::caps_of("t8 k2 e5 h72 i40 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 8, 2);
  const MoeLayer layer(caps, experts.stacked());
  const Bytes first = layer.run(call.tensors);
  const Plan again = plan(caps, layer.backend().device());
  Bytes out(first.size());
  MoeTensors tensors = call.tensors;
  tensors.weights = &layer.weights();
  tensors.out = TensorView(out.data(), DType::bf16, {8, 72});
  run(fourfold::bind(again, layer.backend(), tensors, layer.workspace()));
  EXPECT_EQ(out, first);
}
