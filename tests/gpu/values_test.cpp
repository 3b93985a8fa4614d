// What the GPU computes: case files, the device matrix, every combination of options, model shapes, token counts, ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "corpus/corpus.h"
#include "fourfold/fourfold.h"
#include "gpu/gpu_call.h"
#include "gpu/gpu_device.h"
#include "gpu/residue_cases.h"
#include "support/routes.h"
#include "support/temporary_folder.h"

namespace fourfold::gpu_test {
namespace {

constexpr auto kFormats = kResidueFormats;
constexpr const char* kDTypes[] = {"bf16", "f16"};
constexpr auto kActivations = kResidueActivations;
constexpr const char* kOptions[] = {"", " bias", " on_input", " eg11 bias on_input"};

std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(cases_folder()))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Cases, EveryFileWith16BitActivationsPasses) {
  for (Backend* backend : {&gpu(), &naive_gpu()}) {
    std::size_t passed = 0;
    for (const std::string& file : case_files()) {
      const CaseResult result = run_case(file, *backend);
      EXPECT_TRUE(result.ok) << result.name << ": " << result.reason;
      passed += result.ok;
    }
    EXPECT_GT(passed, 40u);
  }
}

TEST(Cases, PlantedFaultsAreSeen) {
  for (const Inject fault : {Inject::nan, Inject::zero, Inject::stale, Inject::swap}) {
    const CaseResult result = run_case(cases_folder() + "/plain_nvfp4.safetensors", gpu(), fault);
    EXPECT_FALSE(result.ok) << static_cast<int>(fault);
    EXPECT_FALSE(result.refused) << static_cast<int>(fault) << ": " << result.reason;
  }
}

// fp32 activations are the CPU's: a case file that has them is refused with the reason, not computed in 16 bits.
TEST(Cases, Fp32ActivationsAreRefusedWithAReason) {
  const Caps caps = support::caps_of("t3 k2 e4 h64 i32 nvfp4 f32 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 3, 2);
  const support::TemporaryFolder folder;
  const std::string file = folder.file("f32.safetensors");
  dump_case(file, "f32", caps, experts.stacked(), call.tensors);
  const CaseResult result = run_case(file, gpu());
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.refused);
  EXPECT_NE(result.reason.find("F32 runs on a CPU only"), std::string::npos) << result.reason;
}

// The residue, poison and replay matrix of `fourfold verify`.
TEST(Matrix, EveryProblemPasses) {
  for (Backend* backend : {&gpu(), &naive_gpu()}) {
    const std::vector<CaseResult> results = verify_device(*backend, Inject::none);
    EXPECT_GT(results.size(), 300u);
    for (const CaseResult& result : results) EXPECT_TRUE(result.ok) << result.name << ": " << result.reason;
  }
}

TEST(Options, EveryFormatDTypeAndActivation) {
  std::uint64_t seed = 0;
  const std::size_t stride = depth() == Depth::full ? 1 : 5;  // prime to 2, 4 and 7: every value of each list occurs
  std::size_t at = 0, tried = 0;
  for (const char* format : kFormats)
    for (const char* dtype : kDTypes)
      for (const char* activation : kActivations)
        for (const char* options : kOptions) {
          if (at++ % stride != 0) continue;
          const std::string problem =
              std::string("t7 k3 e5 h136 i72 ") + format + " " + dtype + " " + activation + options;
          EXPECT_TRUE(problem_fits(gpu(), problem, ++seed, {.ids_are_64_bit = seed % 2 == 0, .plant_dead_ids = true}));
          ++tried;
        }
  EXPECT_GE(tried, 78u);
}

TEST(Shapes, TheSmallestAndSomeOddSizes) {
  for (const char* sizes : {"t1 k1 e1 h8 i8 ", "t3 k64 e2 h24 i8 ", "t130 k2 e300 h8 i136 ", "t2 k1 e4096 h16 i16 "})
    for (const char* format : kFormats)
      EXPECT_TRUE(problem_fits(gpu(), std::string(sizes) + format + " bf16 silu", 5, {.plant_dead_ids = true}));
}

TEST(Shapes, LongRows) {
  for (const char* format : kFormats)
    for (const char* dtype : kDTypes)
      for (const char* sizes : {"t3 k1 e1 h2312 i136 ", "t3 k1 e1 h136 i2312 "})
        EXPECT_TRUE(problem_fits(gpu(), std::string(sizes) + format + " " + dtype + " silu", 9));
}

// BL-18 and BL-19 of the bug log.
TEST(Shapes, IntermediateSizesOfShardedModels) {
  for (const int intermediate : {32, 96, 136, 176, 352, 464, 672, 704, 1344, 1408, 2880})
    for (const char* format : {"nvfp4", "mxfp4", "int4 g32", "int4 g64", "int4 g128 zp", "int4 grow"})
      EXPECT_TRUE(problem_fits(gpu(), "t3 k2 e3 h256 i" + std::to_string(intermediate) + " " + format + " bf16 silu",
                               intermediate));
}

// BL-14: one thread per expert, a table of a fixed size and the like show at these counts.
TEST(Shapes, ManyExpertsAndSlots) {
  for (const int experts : {1, 7, 8, 31, 33, 60, 64, 384, 512, 896, 1023, 1024, 1025, 4096})
    for (const int slots : {1, 8, 16, 17, 22, 32})
      EXPECT_TRUE(problem_fits(
          gpu(), "t19 k" + std::to_string(slots) + " e" + std::to_string(experts) + " h24 i16 mxfp4 bf16 silu",
          experts + slots, {.plant_dead_ids = true}));
}

/// The corpus with its hidden and intermediate sizes, formats, dtypes and activations, and two experts: the rest of
/// the weights would be gigabytes that no run of few tokens touches.
std::vector<std::string> small_corpus() {
  std::vector<std::string> problems;
  for (const support::CorpusShape& shape : support::corpus_shapes()) {
    const Caps caps = support::caps_of("t1 " + shape.sizes + " nvfp4 bf16 silu");
    const std::string sizes = "k2 e2 h" + std::to_string(caps.hidden) + " i" + std::to_string(caps.intermediate);
    for (const char* format : {"nvfp4", "mxfp4", "int4 g32", "int4 g128", "int4 g128 zp", "int4 grow zp"})
      for (const char* dtype : kDTypes)
        for (const std::string& activation : shape.activations)
          problems.push_back("t3 " + sizes + " " + format + " " + dtype + " " + activation);
  }
  return problems;
}

TEST(Corpus, EveryModelShapeAtFewTokens) {
  const std::vector<std::string> problems = small_corpus();
  ASSERT_GT(problems.size(), 100u);
  const std::size_t stride = depth() == Depth::full ? 1 : 11;  // prime to 12: every shape, format and dtype occurs
  std::size_t tried = 0;
  for (std::size_t i = 0; i < problems.size(); i += stride, ++tried) EXPECT_TRUE(problem_fits(gpu(), problems[i], i));
  EXPECT_GT(tried, 10u);
}

// BL-17: certain remainders fault. The full range on one layer, every count with its own tokens and guard areas.
TEST(Tokens, EveryCountTo130AndTails) {
  const Caps caps = support::caps_of("t1023 k2 e6 h136 i72 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 21);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  std::vector<std::int64_t> counts;
  for (std::int64_t tokens = 0; tokens <= 130; ++tokens) counts.push_back(tokens);
  counts.insert(counts.end(), {255, 256, 257, 511, 512, 513, 519, 1023});
  for (const std::int64_t tokens : counts) {
    const RandomCall call = random_call(caps, tokens, 100 + tokens, {tokens % 2 == 1, tokens % 3 == 0});
    EXPECT_TRUE(call_fits(layer, experts.stacked(), call.tensors)) << tokens << " tokens";
  }
}

TEST(Ids, RoutesByHand) {
  const Caps caps = support::caps_of("t4 k2 e8 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 5);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  const std::vector<std::int64_t> routes[] = {
      {-1, -1, -1, -1, -1, -1, -1, -1},              // nobody is called
      {-1, -1, 0, -1, -1, 7, 3, 4},                  // BL-12
      {8, 0, -2, 1, 2147483647, 2, 3, -2147483648},  // out of range on both sides
      {3, 3, 3, 3, 3, 3, 3, 3},                      // one expert, twice a token
      {0, 0, 0, 0, 7, 7, 7, 7},                      // the first and the last expert
      {0, 1, 2, 3, 4, 5, 6, 7},
      {7, 6, 5, 4, 3, 2, 1, 0},
  };
  for (const auto& ids : routes)
    for (const bool wide : {false, true}) {
      RandomCall call = random_call(caps, 4, 6, {.ids_are_64_bit = wide});
      support::set_ids(call, ids);
      EXPECT_TRUE(call_fits(layer, experts.stacked(), call.tensors)) << ids[0] << " " << ids[1] << " wide " << wide;
    }
}

TEST(Ids, IdsBeyond32BitsIndexNothing) {
  const Caps caps = support::caps_of("t4 k2 e8 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 5);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  RandomCall call = random_call(caps, 4, 6, {.ids_are_64_bit = true});
  support::set_ids(call, {4294967299, 0, 1, INT64_MIN, INT64_MAX, 2, 3, 4});
  EXPECT_TRUE(call_fits(layer, experts.stacked(), call.tensors));
}

// A row without a live expert is written as zeros, whatever was there.
TEST(Ids, ADeadRowIsZero) {
  const Caps caps = support::caps_of("t2 k2 e8 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 5);
  const GpuLayer layer(gpu(), caps, experts.stacked());
  RandomCall call = random_call(caps, 2, 6);
  support::set_ids(call, {-1, -1, 3, 4});
  const Bytes out = GpuCall(layer, call.tensors).run();
  EXPECT_EQ(Bytes(out.begin(), out.begin() + 128), Bytes(128, std::byte{0}));
  EXPECT_NE(Bytes(out.begin() + 128, out.end()), Bytes(128, std::byte{0}));
}

}  // namespace
}  // namespace fourfold::gpu_test
