// Same inputs, same bits; memory that stays where it is; rows beyond 32-bit offsets.
#include <gtest/gtest.h>

#include <cstring>

#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"

namespace fourfold::gpu_test {
namespace {

/// The device with fewer multiprocessors: other grids, other blocks of an item, the same results.
Plan plan_with(const Caps& caps, int multiprocessors) {
  Device device = gpu().device();
  device.multiprocessors = multiprocessors;
  return fourfold::plan(caps, device);
}

// BL-15. Sums of many terms, so that another order would show: 64 tokens are added in shared memory, 300 in panels.
TEST(Determinism, FiftyRunsGiveTheSameBytesOnAnyNumberOfMultiprocessors) {
  for (const char* sizes : {"t64 k8 e16 h1024 i512 ", "t300 k8 e16 h1024 i512 "})
    for (const char* format : {"nvfp4 bf16 silu", "int4 g32 zp f16 swiglu_oai bias"}) {
      const Caps caps = support::caps_of(std::string(sizes) + format);
      const RandomExperts experts(caps, 1);
      const RandomCall call = random_call(caps, caps.max_tokens, 2);
      Bytes first;
      for (const int multiprocessors : {132, 66, 20, 1}) {
        const GpuLayer layer(gpu(), plan_with(caps, multiprocessors), experts.stacked());
        const GpuCall on_gpu(layer, call.tensors);
        if (first.empty()) first = on_gpu.run();
        for (int run = 0; run < 50; ++run)
          ASSERT_EQ(on_gpu.run(static_cast<unsigned char>(run * 37)), first)
              << sizes << format << " on " << multiprocessors << " multiprocessors, run " << run;
      }
    }
}

/// `tokens` tokens at once and cut into batches: the same bytes, across every border between bands.
void expect_same_in_batches(const std::string& problem, std::initializer_list<std::int64_t> batches) {
  const Caps caps = support::caps_of(problem);
  const RandomExperts experts(caps, 8);
  const std::int64_t tokens = caps.max_tokens;
  const RandomCall call = random_call(caps, tokens, 9);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  EXPECT_GT(layer.plan().bands().size(), 1u) << "no border to cross";
  GpuCall on_gpu(layer, call.tensors);
  const Bytes all = on_gpu.run();
  const std::size_t row = all.size() / static_cast<std::size_t>(tokens);
  for (const std::int64_t batch : batches)
    for (std::int64_t first = 0; first < tokens; first += batch) {
      const std::int64_t count = std::min<std::int64_t>(batch, tokens - first);
      on_gpu.load(support::rows_of(call.tensors, first, count));
      const Bytes part = on_gpu.run();
      ASSERT_EQ(part.size(), count * row);
      ASSERT_EQ(std::memcmp(part.data(), all.data() + first * row, part.size()), 0)
          << problem << ": rows from " << first << " in batches of " << batch;
    }
}

// 300 tokens go through panels of rows, fewer through sums in shared memory: two paths, one result.
TEST(Determinism, ATokenHasTheSameBitsAloneAndInEveryBatch) {
  for (const char* format : {"nvfp4 bf16 silu", "mxfp4 f16 swiglu_oai bias", "int4 g32 bf16 gelu_tanh",
                             "int4 g128 zp f16 relu2 bias on_input"})
    expect_same_in_batches(std::string("t300 k4 e16 h256 i128 ") + format, {1, 4, 17, 64, 150, 256, 299});
}

TEST(Determinism, ATokenHasTheSameBitsAloneAndInEveryBatchOfALargeModel) {
  expect_same_in_batches("t300 k8 e64 h6144 i512 nvfp4 bf16 silu", {1, 13, 128});
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

}  // namespace
}  // namespace fourfold::gpu_test
