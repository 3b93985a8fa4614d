// Sizes: residues of hidden and intermediate, every token count, every top-k, expert counts, published model shapes.
#include <gtest/gtest.h>

#include <set>

#include "oracle/moe_oracle.h"
#include "support/moe_layer.h"

using namespace fourfold;
using support::problem_fits;

namespace {

const char* const kFormats[] = {"nvfp4", "mxfp4", "int4 g32", "int4 g128 zp", "int4 grow"};
const char* const kActivations[] = {"silu", "relu2", "swiglu_oai", "gelu_tanh", "situ"};
const char* const kDTypes[] = {"bf16", "f32", "f16"};

std::set<std::int64_t> residue_sizes() {
  std::set<std::int64_t> sizes;
  for (std::int64_t modulus : {8, 16, 32, 64, 128, 256})
    for (std::int64_t size : {modulus - 8, modulus, modulus + 8})
      if (size > 0) sizes.insert(size);
  return sizes;
}

Caps shape(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, std::int64_t hidden,
           std::int64_t intermediate, const std::string& rest) {
  return support::caps_of("t" + std::to_string(tokens) + " k" + std::to_string(top_k) + " e" + std::to_string(experts) +
                          " h" + std::to_string(hidden) + " i" + std::to_string(intermediate) + " " + rest);
}

}  // namespace

class Residues : public testing::TestWithParam<const char*> {};

TEST_P(Residues, OfBothSizesOnEveryInstructionSet) {
  const auto sizes = residue_sizes();
  ASSERT_EQ(sizes.size(), 14u);
  int turn = 0;
  for (const auto& backend : support::backends())
    for (std::int64_t size : sizes) {
      const std::string rest = std::string(GetParam()) + " " + kDTypes[turn % 3] + " " + kActivations[turn % 5];
      EXPECT_TRUE(problem_fits(shape(5, 2, 3, size, 40, rest), 5, turn, *backend));
      EXPECT_TRUE(problem_fits(shape(9, 1, 2, 72, size, rest), 9, turn, *backend));
      ++turn;
    }
}
INSTANTIATE_TEST_SUITE_P(Formats, Residues, testing::ValuesIn(kFormats));

// Sizes that public kernels got wrong: tensor-parallel slices, half tiles, scale tails.
TEST(Shapes, NamedIntermediateSizes) {
  for (std::int64_t inner : {8, 24, 32, 40, 112, 128, 144, 176, 192, 224, 312, 352, 464, 480, 496, 512, 672, 704})
    for (const char* format : {"nvfp4", "mxfp4", "int4 g64", "int4 g128"})
      for (std::int64_t tokens : {1, 3}) {
        const char* activation = inner / 8 % 2 == tokens / 2 ? "relu2" : "silu";
        EXPECT_TRUE(problem_fits(shape(tokens, 1, 2, 64, inner, std::string(format) + " bf16 " + activation), tokens,
                                 inner, support::native()));
      }
}

TEST(Shapes, PublishedModels) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{2048, 768}, {2560, 1024}, {2816, 704}, {2880, 2880},
                                                         {4096, 672}, {6144, 2048}, {7168, 256}, {2688, 1856}};
  int turn = 0;
  for (const auto& [hidden, inner] : sizes) {
    const char* const format = kFormats[turn % 4];
    EXPECT_TRUE(
        problem_fits(shape(2, 1, 2, hidden, inner, std::string(format) + " bf16 silu"), 2, ++turn, support::native()));
  }
}

TEST(Shapes, OtherSizesAreRefusedByName) {
  for (const auto& [hidden, inner, name] :
       {std::tuple{256, 130, "intermediate"}, std::tuple{63, 32, "hidden"}, std::tuple{64, 4, "intermediate"}}) {
    Caps caps = shape(1, 1, 2, 64, 32, "nvfp4");
    caps.hidden = hidden;
    caps.intermediate = inner;
    const Support support = can_implement(caps, support::native().device());
    EXPECT_FALSE(support.ok);
    EXPECT_NE(support.reason.find(name), std::string::npos) << support.reason;
    EXPECT_THROW(plan(caps, support::native().device()), Error);
  }
}

class TokenCounts : public testing::TestWithParam<const char*> {};

// One plan serves every count: the first T rows of one call, T = 0 .. 130, each compared on its own.
TEST_P(TokenCounts, EachFromNoneTo130) {
  const Caps caps = support::caps_of(std::string("t130 k2 e6 h72 i40 ") + GetParam());
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 130, 2, {.plant_dead_ids = true});
  const oracle::Truth truth = oracle::evaluate(caps, experts.stacked(), call.tensors);
  for (const auto& backend : support::backends()) {
    const support::MoeLayer layer(caps, experts.stacked(), *backend);
    for (std::int64_t tokens = 0; tokens <= 130; ++tokens) {
      const MoeTensors inputs = support::rows_of(call.tensors, 0, tokens);
      const support::Bytes out = layer.run(inputs);
      oracle::Truth prefix;
      prefix.value.assign(truth.value.begin(), truth.value.begin() + tokens * caps.hidden);
      prefix.tolerance.assign(truth.tolerance.begin(), truth.tolerance.begin() + tokens * caps.hidden);
      const oracle::Difference difference =
          oracle::difference(ConstTensorView(out.data(), caps.activation_dtype, {tokens, caps.hidden}), prefix);
      EXPECT_EQ(difference.compared, tokens * caps.hidden);
      EXPECT_EQ(difference.wrong, 0) << tokens << " tokens on " << cpu_isa_name(backend->device().isa) << ", worst "
                                     << difference.worst;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, TokenCounts,
                         testing::Values("nvfp4 bf16 silu", "mxfp4 bf16 swiglu_oai bias", "int4 g32 f16 silu",
                                         "int4 g16 zp f32 relu2"));

TEST(Shapes, NamedLargerTokenCounts) {
  for (const auto& backend : support::backends())
    for (std::int64_t tokens : {255, 256, 257, 511, 512, 513, 519, 1023})
      EXPECT_TRUE(problem_fits(shape(tokens, 2, 8, 64, 32, "nvfp4 bf16 silu"), tokens, tokens, *backend));
}

TEST(Shapes, EveryTopK) {
  for (std::int64_t experts : {1, 8, 40})
    for (std::int64_t top_k = 1; top_k <= 33; ++top_k)
      EXPECT_TRUE(problem_fits(shape(3, top_k, experts, 64, 32, "nvfp4 bf16 silu"), 3, top_k, support::native()))
          << "duplicate ids within a token add up";
}

TEST(Shapes, ExpertCounts) {
  for (std::int64_t experts : {1, 7, 8, 31, 33, 60, 64, 128, 256, 384, 512, 896, 1023, 1024, 1025, 4096})
    for (std::int64_t top_k : {1, 8, 16, 17, 22, 32})
      EXPECT_TRUE(problem_fits(shape(3, top_k, experts, 16, 8, "mxfp4 bf16 silu"), 3, experts, support::native()));
}

TEST(Shapes, MoreExpertsThanThePlannerTakesAreRefusedInWords) {
  Caps caps = shape(1, 1, 8, 16, 8, "nvfp4");
  for (std::int64_t experts : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{4097}, std::int64_t{1} << 40}) {
    caps.experts = experts;
    const Support support = can_implement(caps, support::native().device());
    EXPECT_FALSE(support.ok);
    EXPECT_NE(support.reason.find("experts"), std::string::npos) << support.reason;
  }
}
