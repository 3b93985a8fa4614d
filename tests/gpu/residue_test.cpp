// The residue matrix on the GPU, its pairwise set, and tensors behind which nothing is mapped.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "gpu/flush_memory.h"
#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"
#include "gpu/residue_cases.h"

namespace fourfold::gpu_test {
namespace {

testing::AssertionResult case_fits(Backend& backend, const ResidueCase& one, std::uint64_t seed) {
  return problem_fits(backend, one.problem, seed, one.options);
}

TEST(Residues, EverySizeWithEveryCountAndFormat) {
  if (depth() == Depth::quick) GTEST_SKIP() << "only in --part 1 and 3; Pairwise has every pair";
  const std::vector<ResidueCase> cases = residue_matrix();
  EXPECT_GE(cases.size(), 672u);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_TRUE(case_fits(gpu(), cases[i], i));
}

// Sizes of one tensor core step and less, which the matrix does not have.
TEST(Residues, SizesBelowATile) {
  std::uint64_t seed = 0;
  for (const int intermediate : {8, 16, 24, 40, 56, 72})
    for (const int hidden : {8, 24, 72})
      for (const char* format : kResidueFormats) {
        const std::string problem = "t9 k2 e3 h" + std::to_string(hidden) + " i" + std::to_string(intermediate) + " " +
                                    format + (seed % 2 == 0 ? " bf16 " : " f16 ") +
                                    kResidueActivations[seed % kResidueActivations.size()];
        EXPECT_TRUE(problem_fits(gpu(), problem, ++seed, {.plant_dead_ids = true}));
      }
}

/// A case of the pairwise set is a test of its own, so that a report says how many ran.
class Pairwise : public testing::TestWithParam<std::size_t> {};

std::string case_name(const testing::TestParamInfo<std::size_t>& info) { return std::to_string(info.param); }

TEST_P(Pairwise, Case) {
  static const std::vector<ResidueCase> cases = pairwise_cases();
  if (out_of_time()) GTEST_SKIP() << "the time for this tool is over";
  EXPECT_TRUE(case_fits(gpu(), cases[GetParam()], GetParam()));
}
INSTANTIATE_TEST_SUITE_P(, Pairwise, testing::Range<std::size_t>(0, pairwise_cases().size()), case_name);

TEST(PairwiseReplay, CapturedAndReplayed) {
  const Caps caps = support::caps_of("t9 k3 e7 h72 i40 mxfp4 bf16 swiglu_oai bias");
  const RandomExperts experts(caps, 3);
  const RandomCall call = random_call(caps, 9, 4, {.plant_dead_ids = true});
  const GpuLayer layer(gpu(), caps, experts.stacked());
  const GpuCall on_gpu(layer, call.tensors);
  const Bytes eager = on_gpu.run();
  const cuda::Stream stream = cuda::Stream::create(context());
  const Recording recording = record(on_gpu, stream, cuda::CaptureMode::global);
  for (int launch = 0; launch < 4; ++launch) EXPECT_EQ(replay(recording, on_gpu, stream), eager) << launch;
}

TEST(Naive, EveryPairOfOptions) {
  const std::vector<ResidueCase> cases = pairwise_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_TRUE(case_fits(naive_gpu(), cases[i], i));
}

// The plain twins explain the kernels: same weights, same routes, both within the reference's bound, same zero rows.
TEST(Naive, AgreesOnDeadRowsAndInvalidIds) {
  const Caps caps = support::caps_of("t11 k3 e5 h136 i72 int4 g32 zp f16 gelu_tanh bias");
  const RandomExperts experts(caps, 3);
  const RandomCall call = random_call(caps, 11, 4, {.ids_are_64_bit = true, .plant_dead_ids = true});
  const GpuLayer naive_layer(naive_gpu(), caps, experts.stacked()), tile_layer(gpu(), caps, experts.stacked());
  const GpuCall naive(naive_layer, call.tensors), tiles(tile_layer, call.tensors);
  naive.run();
  tiles.run();
  EXPECT_GT(naive.invalid_ids(), 0u);
  EXPECT_EQ(naive.invalid_ids(), tiles.invalid_ids());
}

// Weights of one family of kernels serve no other.
TEST(Naive, WeightsOfTheOtherFamilyAreRefused) {
  const Caps caps = support::caps_of("t4 k2 e4 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 3);
  const RandomCall call = random_call(caps, 4, 4);
  const GpuLayer naive_layer(naive_gpu(), caps, experts.stacked()), tile_layer(gpu(), caps, experts.stacked());
  EXPECT_NE(naive_layer.plan().kernels(), tile_layer.plan().kernels());
  const GpuCall on_gpu(tile_layer, call.tensors);
  MoeTensors tensors;
  tensors.weights = &naive_layer.weights();
  const Stream stream = own_stream(gpu());
  const Bytes before = on_gpu.run();
  const GuardedMemory x(gpu(), static_cast<std::uint64_t>(call.tensors.x.bytes()));
  tensors.x = call.tensors.x;
  tensors.x.data = x.data();
  const GuardedMemory ids(gpu(), 64), weights(gpu(), 64), out(gpu(), x.bytes());
  tensors.topk_ids = ConstTensorView(ids.data(), DType::i32, {4, 2});
  tensors.topk_weights = ConstTensorView(weights.data(), DType::f32, {4, 2});
  tensors.out = TensorView(out.data(), DType::bf16, {4, 64});
  try {
    fourfold::bind(tile_layer.plan(), gpu(), tensors, tile_layer.workspace().span(), stream);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
  }
  EXPECT_EQ(on_gpu.run(), before);
}

// One expert, so that its weights are the last bytes of their allocation. Every tensor ends where its mapping ends: an
// access behind it ends the run with an illegal address. Under memcheck allocations are plain and exact instead.
TEST(EndOfMemory, NothingIsTouchedBehindAnyTensor) {
  if (!plain_allocations() && !flush_memory_available()) GTEST_SKIP() << "this driver maps no memory by hand";
  const FlushAllocations flush(256);
  std::uint64_t seed = 0;
  for (const int intermediate : kResidueIntermediates)
    for (const int tokens : {1, 8, 17, 65, 300}) {
      if (depth() == Depth::quick && (seed % 3 != 0 || tokens * intermediate > 40000)) {
        ++seed;
        continue;
      }
      const std::string problem = "t" + std::to_string(tokens) + (seed % 2 == 0 ? " k1 e1 h" : " k2 e1 h") +
                                  std::to_string(seed % 3 == 0 ? 72 : 136) + " i" + std::to_string(intermediate) + " " +
                                  kResidueFormats[seed % kResidueFormats.size()] +
                                  (seed / 7 % 2 == 0 ? " bf16 " : " f16 ") + (seed % 5 == 0 ? "relu2" : "silu") +
                                  (seed % 4 == 3 ? " bias" : "");
      EXPECT_TRUE(problem_fits(gpu(), problem, ++seed));
    }
  EXPECT_EQ(seed, 60u);
}

}  // namespace
}  // namespace fourfold::gpu_test
