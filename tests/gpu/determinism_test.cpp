// Same inputs, same bits; memory that stays where it is; rows beyond 32-bit offsets.
#include <gtest/gtest.h>

#include <cstring>

#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"

namespace fourfold::gpu_test {
namespace {

// BL-15.
TEST(Determinism, FiftyRunsGiveTheSameBytes) {
  for (const char* problem :
       {"t257 k4 e16 h256 i128 nvfp4 bf16 silu", "t257 k4 e16 h256 i128 int4 g32 zp f16 swiglu_oai bias"}) {
    const Caps caps = support::caps_of(problem);
    const RandomExperts experts(caps, 1);
    const RandomCall call = random_call(caps, caps.max_tokens, 2);
    const GpuLayer layer(gpu(), caps, experts.stacked());
    const GpuCall on_gpu(layer, call.tensors);
    const Bytes first = on_gpu.run();
    for (int run = 1; run < 50; ++run)
      ASSERT_EQ(on_gpu.run(static_cast<unsigned char>(run * 37)), first) << problem << ", run " << run;
  }
}

TEST(Determinism, ATokenHasTheSameBitsAloneAndInEveryBatch) {
  const Caps caps = support::caps_of("t257 k4 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 8);
  const RandomCall call = random_call(caps, 257, 9);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  GpuCall on_gpu(layer, call.tensors);
  const Bytes all = on_gpu.run();
  const std::size_t row = all.size() / 257;
  for (const std::int64_t batch : {1, 4, 16, 64})
    for (std::int64_t first = 0; first < 257; first += batch) {
      const std::int64_t count = std::min<std::int64_t>(batch, 257 - first);
      on_gpu.load(support::rows_of(call.tensors, first, count));
      const Bytes part = on_gpu.run();
      ASSERT_EQ(part.size(), count * row);
      ASSERT_EQ(std::memcmp(part.data(), all.data() + first * row, part.size()), 0)
          << "rows from " << first << " in batches of " << batch;
    }
}

// Another plan's weights and workspace of the same layer: nothing of a backend's history is in a result.
TEST(Determinism, PlansMadeAgainGiveTheSameBytes) {
  const Caps caps = support::caps_of("t33 k2 e5 h136 i72 mxfp4 f16 gelu_tanh");
  const RandomExperts experts(caps, 8);
  const RandomCall call = random_call(caps, 33, 9, {.plant_dead_ids = true});
  Bytes first;
  for (int round = 0; round < 5; ++round) {
    const GpuLayer layer(gpu(), caps, experts.stacked());
    const Bytes out = GpuCall(layer, call.tensors).run();
    if (round == 0) first = out;
    EXPECT_EQ(out, first) << round;
  }
  EXPECT_GT(first.size(), 0u);
}

// BL-07. The driver keeps what the first launches and graphs needed; after them nothing may move.
TEST(MemoryFlat, Over200EagerRuns) {
  const Caps caps = support::caps_of("t64 k4 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 64, 2);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  const GpuCall on_gpu(layer, call.tensors);
  for (int run = 0; run < 5; ++run) on_gpu.run();
  const std::uint64_t before = free_bytes(*context());
  for (int run = 5; run < 200; ++run) on_gpu.run();
  EXPECT_EQ(free_bytes(*context()), before);
}

TEST(MemoryFlat, OverAThousandTokenCountsEagerAndCaptured) {
  const Caps caps = support::caps_of("t1000 k2 e6 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 1000, 2);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  GpuCall on_gpu(layer, call.tensors);
  const Bytes all = on_gpu.run();
  const cuda::Stream stream = cuda::Stream::create(context());
  // 1000 and 1 before counting: both ends of what a graph of this layer can need.
  for (const std::int64_t tokens : {1000, 1, 1000}) {
    on_gpu.load(support::rows_of(call.tensors, 0, tokens));
    replay(record(on_gpu, stream), on_gpu, stream);
  }
  const std::uint64_t before = free_bytes(*context());
  for (std::int64_t tokens = 1; tokens <= 1000; ++tokens) {
    on_gpu.load(support::rows_of(call.tensors, 0, tokens));
    const Bytes eager = on_gpu.run();
    ASSERT_EQ(eager, Bytes(all.begin(), all.begin() + eager.size())) << tokens;
    ASSERT_EQ(replay(record(on_gpu, stream), on_gpu, stream), eager) << tokens;
  }
  EXPECT_EQ(free_bytes(*context()), before);
}

TEST(MemoryFlat, LayersGiveBackWhatTheyTook) {
  const Caps caps = support::caps_of("t64 k4 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 64, 2);
  const auto round = [&] {
    const GpuLayer layer(gpu(), caps, experts.stacked());
    EXPECT_FALSE(GpuCall(layer, call.tensors).run().empty());
  };
  for (int i = 0; i < 3; ++i) round();
  const std::uint64_t before = free_bytes(*context());
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(free_bytes(*context()), before);
}

/// Rows of `block` again and again until there are `rows`: the same results in every period.
template <class T>
std::vector<T> repeated(const std::vector<T>& block, std::size_t times) {
  std::vector<T> all;
  all.reserve(block.size() * times);
  for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), block.begin(), block.end());
  return all;
}

/// A call of `tokens` = 1000 * times rows that repeats one of 1000 rows, compared with the small one row by row.
void expect_repeats(const Caps& caps, std::size_t times) {
  const RandomExperts experts(caps, 4);
  const RandomCall block = random_call(caps, 1000, 5);
  const GpuLayer layer(gpu(), caps, experts.stacked());
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
  const Caps caps = support::caps_of("t100000 k8 e16 h8 i2816 nvfp4 bf16 silu");
  if (free_bytes(*context()) < (std::uint64_t{8} << 30)) GTEST_SKIP() << "needs 8 GiB of free device memory";
  expect_repeats(caps, 100);
}

TEST(LargeOffsets, RowsOfTheInputAndTheOutput) {
  const Caps caps = support::caps_of("t800000 k1 e16 h2816 i8 nvfp4 bf16 silu");
  if (depth() == Depth::quick) GTEST_SKIP() << "moves 18 GB between host and device: only in --part 1 and 3";
  if (free_bytes(*context()) < (std::uint64_t{12} << 30)) GTEST_SKIP() << "needs 12 GiB of free device memory";
  expect_repeats(caps, 800);
}

}  // namespace
}  // namespace fourfold::gpu_test
