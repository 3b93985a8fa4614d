// Graphs replayed with other inputs, other batches between, many times; every replay equals the eager run.
#include <gtest/gtest.h>

#include <memory>

#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"

namespace fourfold::gpu_test {
namespace {

constexpr int kVariants = 4;
constexpr int kReplays = 16;
constexpr unsigned char kPoison[] = {0xff, 0x00, 0x5a, 0x7f};

/// Captures at `tokens`, then replays with ids, weights and activations changed in place and the workspace poisoned.
void expect_replays_equal_eager(const GpuLayer& layer, std::int64_t tokens) {
  std::vector<RandomCall> variants;
  for (int i = 0; i < kVariants; ++i)
    variants.push_back(random_call(layer.plan().caps(), tokens, 1000 * tokens + i, {.plant_dead_ids = i % 2 == 1}));
  std::vector<Bytes> eager;
  for (const RandomCall& variant : variants) eager.push_back(GpuCall(layer, variant.tensors).run());
  ASSERT_NE(eager[0], eager[1]) << tokens;

  GpuCall call(layer, variants[0].tensors);
  const cuda::Stream stream = cuda::Stream::create(context());
  const Recording recording = record(call, stream);
  for (int i = 0; i < kReplays; ++i) {
    const int variant = (i + i / kVariants) % kVariants;
    call.load(variants[variant].tensors);
    ASSERT_EQ(replay(recording, call, stream, kPoison[i / 2 % 4]), eager[variant]) << tokens << " tokens, replay " << i;
  }
  EXPECT_TRUE(call.untouched()) << tokens;
}

TEST(Replay, EveryDecodeCountWithChangedInputs) {
  const Caps caps = support::caps_of("t64 k2 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 11);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  for (std::int64_t tokens = 1; tokens <= 64; ++tokens) expect_replays_equal_eager(layer, tokens);
}

TEST(Replay, LargeCountsWithChangedInputs) {
  const Caps caps = support::caps_of("t16384 k2 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 12);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  for (const std::int64_t tokens : {512, 3072, 16384}) expect_replays_equal_eager(layer, tokens);
}

TEST(Replay, EveryFormatAndDType) {
  for (const char* format : {"nvfp4", "mxfp4", "int4 g32", "int4 g128 zp"})
    for (const char* dtype : {"bf16", "f16"}) {
      const Caps caps = support::caps_of(std::string("t17 k3 e6 h136 i72 ") + format + " " + dtype + " silu bias");
      const RandomExperts experts(caps, 13);
      const GpuLayer layer(gpu(), caps, experts.stacked());
      expect_replays_equal_eager(layer, 17);
    }
}

// BL-01: an eager batch of another size between capture and replay, in the same workspace.
TEST(Replay, BiggerAndSmallerEagerBatchesBetween) {
  const Caps caps = support::caps_of("t512 k2 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 14);
  const RandomCall big = random_call(caps, 512, 1), middle = random_call(caps, 16, 2), small = random_call(caps, 1, 3);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  const GpuCall big_call(layer, big.tensors), call(layer, middle.tensors), small_call(layer, small.tensors);
  const Bytes eager = call.run();
  const cuda::Stream stream = cuda::Stream::create(context());
  const Recording recording = record(call, stream);
  const Bytes first_big = big_call.run(), first_small = small_call.run();
  EXPECT_EQ(replay(recording, call, stream), eager);
  EXPECT_EQ(big_call.run(), first_big);
  recording.exec.launch(stream.value());  // in what the big batch left behind
  stream.synchronize();
  EXPECT_EQ(call.out(), eager);
  EXPECT_EQ(small_call.run(), first_small);
  recording.exec.launch(stream.value());
  stream.synchronize();
  EXPECT_EQ(call.out(), eager);
  EXPECT_TRUE(call.untouched());
}

// BL-02.
TEST(Replay, DestroyedAndCapturedAgain20Times) {
  const Caps caps = support::caps_of("t32 k4 e256 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 15);
  const RandomCall inputs = random_call(caps, 32, 1);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  const GpuCall call(layer, inputs.tensors);
  const Bytes eager = call.run();
  const cuda::Stream stream = cuda::Stream::create(context());
  for (int round = 0; round < 20; ++round) {
    {
      const Recording recording = record(call, stream, static_cast<cuda::CaptureMode>(round % 3));
      ASSERT_EQ(replay(recording, call, stream), eager) << round;
    }
    ASSERT_EQ(call.run(), eager) << round;
  }
}

// The order of launches on the two streams is the driver's; one workspace each, one set of weights.
TEST(Replay, TwoStreamsOnTheSameWeights) {
  const Caps caps = support::caps_of("t64 k4 e16 h256 i128 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 16);
  const RandomCall first_inputs = random_call(caps, 64, 1), second_inputs = random_call(caps, 33, 2);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  const GuardedMemory second_workspace(gpu(), layer.plan().workspace_bytes());
  const GpuCall first(layer, first_inputs.tensors), second(layer, second_inputs.tensors, second_workspace);
  const Bytes first_eager = first.run(), second_eager = second.run();
  const cuda::Stream a = cuda::Stream::create(context()), b = cuda::Stream::create(context());
  const Recording first_graph = record(first, a), second_graph = record(second, b);
  for (int round = 0; round < 10; ++round) {
    first.poison();
    second.poison();
    for (int launch = 0; launch < 8; ++launch) {
      first_graph.exec.launch(a.value());
      second_graph.exec.launch(b.value());
      fourfold::run(second.bind({b.value()}));
      fourfold::run(first.bind({a.value()}));
    }
    a.synchronize();
    b.synchronize();
    ASSERT_EQ(first.out(), first_eager) << round;
    ASSERT_EQ(second.out(), second_eager) << round;
  }
  EXPECT_TRUE(first.untouched());
  EXPECT_TRUE(second.untouched());
}

}  // namespace
}  // namespace fourfold::gpu_test
