// Sizes at which 32 bits overflow, tables run over and work is as uneven as it can be.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"
#include "support/routes.h"

namespace fourfold::gpu_test {
namespace {

constexpr std::int64_t kSampledRows = 24;

bool has_free_gib(std::uint64_t gib) { return free_bytes(*context()) >= gib << 30; }

/// Rows of `block` again and again until there are `times` as many.
template <class T>
std::vector<T> repeated(const std::vector<T>& block, std::size_t times) {
  std::vector<T> all;
  all.reserve(block.size() * times);
  for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), block.begin(), block.end());
  return all;
}

/// A call of 1000 * times rows that repeats 1000 rows: every period has the bytes of the small call, which fits the
/// reference.
void expect_repeats(const Caps& caps, std::size_t times) {
  const RandomExperts experts(caps, 4);
  const RandomCall block = random_call(caps, 1000, 5);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  EXPECT_TRUE(samples_fit(layer, experts.stacked(), block.tensors, kSampledRows));
  const Bytes small = GpuCall(layer, block.tensors).run();
  const std::vector<std::byte> x = repeated(block.x, times), ids = repeated(block.topk_ids, times);
  const std::vector<float> weights = repeated(block.topk_weights, times);
  MoeTensors tensors = block.tensors;
  const auto tokens = static_cast<std::int64_t>(1000 * times);
  tensors.x = ConstTensorView(x.data(), caps.activation_dtype, {tokens, caps.hidden});
  tensors.topk_ids = ConstTensorView(ids.data(), DType::i32, {tokens, caps.top_k});
  tensors.topk_weights = ConstTensorView(weights.data(), DType::f32, {tokens, caps.top_k});
  const GpuCall large(layer, tensors);
  const Bytes out = large.run();
  ASSERT_EQ(out.size(), small.size() * times);
  for (std::size_t i = 0; i < times; ++i)
    ASSERT_EQ(std::memcmp(out.data() + i * small.size(), small.data(), small.size()), 0) << "rows from " << 1000 * i;
  EXPECT_TRUE(large.untouched());
}

// BL-16: at width 2816, row 762601 is the first whose bf16 offset needs more than 32 bits.
TEST(LargeOffsets, RoutedRowsOfTheIntermediate) {
  if (!has_free_gib(12)) GTEST_SKIP() << "needs 12 GiB of free device memory";
  expect_repeats(support::caps_of("t100000 k8 e16 h8 i2816 nvfp4 bf16 silu"), 100);
}

TEST(LargeOffsets, RowsOfTheInputAndTheOutput) {
  if (depth() == Depth::quick) GTEST_SKIP() << "moves 18 GB between host and device: only in --part 1 and 3";
  if (!has_free_gib(16)) GTEST_SKIP() << "needs 16 GiB of free device memory";
  expect_repeats(support::caps_of("t800000 k1 e16 h2816 i8 nvfp4 bf16 silu"), 800);
}

// Expert 4 begins at weight 2^31 of the first projection, expert 8 at 2^32.
TEST(LargeOffsets, ExpertsBehind32BitsOfWeights) {
  if (depth() == Depth::quick) GTEST_SKIP() << "packs 4 GB: only in --part 1 and 3";
  if (!has_free_gib(8)) GTEST_SKIP() << "needs 8 GiB of free device memory";
  const Caps caps = support::caps_of("t3 k1 e9 h16384 i16384 nvfp4 bf16 silu");
  ASSERT_GE((caps.experts - 1) * caps.gate_up_rows() * caps.hidden, std::int64_t{1} << 32);
  const RandomExperts experts(caps, 4);
  RandomCall call = random_call(caps, 3, 5);
  support::set_ids(call, {8, 0, 4});
  const GpuLayer layer(gpu(), caps, experts.stacked());
  EXPECT_TRUE(call_fits(layer, experts.stacked(), call.tensors));
}

TEST(Extremes, EveryTokenToOneExpert) {
  for (const char* problem : {"t4096 k1 e64 h512 i256 nvfp4 bf16 silu", "t200 k1 e64 h512 i256 mxfp4 f16 silu"}) {
    const Caps caps = support::caps_of(problem);
    const RandomExperts experts(caps, 6);
    RandomCall call = random_call(caps, caps.max_tokens, 7);
    support::set_ids(call, std::vector<std::int64_t>(static_cast<std::size_t>(caps.max_tokens), 37));
    const GpuLayer layer(gpu(), caps, experts.stacked());
    EXPECT_TRUE(samples_fit(layer, experts.stacked(), call.tensors, kSampledRows)) << problem;
  }
}

// Every slot of every token names the same expert: a token is added to itself.
TEST(Extremes, EverySlotToOneExpert) {
  for (const char* problem : {"t100 k64 e3 h256 i128 int4 g32 bf16 silu", "t300 k64 e3 h256 i128 nvfp4 f16 silu"}) {
    const Caps caps = support::caps_of(problem);
    const RandomExperts experts(caps, 6);
    RandomCall call = random_call(caps, caps.max_tokens, 7);
    support::set_ids(call, std::vector<std::int64_t>(static_cast<std::size_t>(caps.max_tokens * caps.top_k), 2));
    const GpuLayer layer(gpu(), caps, experts.stacked());
    EXPECT_TRUE(samples_fit(layer, experts.stacked(), call.tensors, kSampledRows)) << problem;
  }
}

TEST(Extremes, LargeBatchOverManyExperts) {
  const Caps caps = support::caps_of("t8192 k6 e256 h1024 i512 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 6);
  const RandomCall call = random_call(caps, caps.max_tokens, 7, {.plant_dead_ids = true});
  const GpuLayer layer(gpu(), caps, experts.stacked());
  EXPECT_TRUE(samples_fit(layer, experts.stacked(), call.tensors, kSampledRows));
}

TEST(Extremes, MostExpertsAndMostSlots) {
  for (const char* problem : {"t64 k64 e4096 h64 i32 nvfp4 bf16 silu", "t1 k64 e4096 h64 i32 mxfp4 f16 silu",
                              "t300 k64 e4096 h64 i32 int4 g32 bf16 silu", "t2048 k64 e4096 h64 i32 nvfp4 bf16 silu"}) {
    const Caps caps = support::caps_of(problem);
    const RandomExperts experts(caps, 6);
    const RandomCall call = random_call(caps, caps.max_tokens, 7, {.ids_are_64_bit = true, .plant_dead_ids = true});
    const GpuLayer layer(gpu(), caps, experts.stacked());
    EXPECT_TRUE(samples_fit(layer, experts.stacked(), call.tensors, kSampledRows)) << problem;
  }
}

}  // namespace
}  // namespace fourfold::gpu_test
