// Logits against an independent implementation, and the promise that chunks and batches do not change bits.
#include <cmath>
#include <cstring>

#include "model/model_fixture.h"

namespace fourfold::test {
namespace {

// ---- exactness ------------------------------------------------------------------------------------------------

constexpr double kExact = 2e-4;  // what fp32 activations are held to, absolute

class Exactness : public ::testing::TestWithParam<const char*> {};

TEST_P(Exactness, F32ActivationsMatchTheReference) {
  const std::string folder = kData + GetParam();
  const auto model = load(folder, DType::f32);
  const VerifyModelResult result = verify_model(*model, folder + "/reference.json", kExact);
  EXPECT_LE(result.max_logit_error, kExact);
  EXPECT_LE(result.max_nll_error, 2 * kExact);
  EXPECT_EQ(result.greedy_matched, result.greedy_total);
  EXPECT_EQ(result.greedy_total, 3 * 16);
  EXPECT_EQ(result.logits_compared, (1 + 7 + 33) * 8 + 3 * 320);
  EXPECT_TRUE(result.ok);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Exactness,
                         ::testing::Values("tiny/qwen3_moe", "tiny/qwen3_moe_nonorm_dense0", "tiny_quant/int4_awq",
                                           "tiny_quant/int4_compressed_tensors", "tiny_quant/int4_gptq",
                                           "tiny_quant/nvfp4_compressed_tensors", "tiny_quant/nvfp4_modelopt"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == '/' ? '_' : c;
                           return name;
                         });

TEST(Decoder, DemoModelMatchesTheReferenceWithF32) {
  const VerifyModelResult result = verify_model(demo_model(DType::f32), kDemoReference, kExact);
  EXPECT_LE(result.max_logit_error, kExact);
  EXPECT_EQ(result.greedy_matched, result.greedy_total);
  EXPECT_EQ(result.greedy_total, 48 * 3 + 12 + 25);  // two end at the stop id
  EXPECT_EQ(result.logits_compared, (3 + 8 + 13 + 8 + 24) * 8);
  EXPECT_TRUE(result.ok);
}

TEST(Decoder, DemoModelWithBf16IsWithinItsRoundings) {
  // Each matrix product's input rounds to 8 bits: relative error uniform below 2^-9, so 2^-9 / sqrt(3) in the mean
  // square. A layer has five such inputs on the way (norm, q or k, v, attention's output, norm or activated expert) and
  // the head one; independent, they add in quadrature to sqrt(6 * 5 + 1) * 2^-9 / sqrt(3) = 6.3e-3 of a logit's size.
  // The top logits are below 20 in size. Six deviations for some hundred values: 20 * 6.3e-3 * 6.
  const double bound = 20 * std::sqrt(31.0) * 0x1p-9 / std::sqrt(3.0) * 6;
  const VerifyModelResult result = verify_model(demo_model(DType::bf16), kDemoReference, bound);
  EXPECT_EQ(result.logits_compared, (3 + 8 + 13 + 8 + 24) * 8);
  EXPECT_LE(result.max_logit_error, bound);
  EXPECT_LE(result.max_nll_error, 2 * bound);
  EXPECT_GT(result.max_logit_error, 0);
}

TEST(Decoder, SaysWhatTheExpertsAre) {
  EXPECT_EQ(demo_model(DType::f32).format_text(), "bf16");
  EXPECT_EQ(load(kData + "tiny_quant/nvfp4_modelopt", DType::f32)->format_text(), "nvfp4");
  EXPECT_EQ(load(kData + "tiny_quant/int4_awq", DType::f32)->format_text(), "int4 g32 zp");
}

TEST(Decoder, PlainReadsGiveTheSameBitsAsAMapping) {
  ModelOptions options;
  options.memory_map = false;
  const auto read = Model::load(kData + "tiny_quant/nvfp4_modelopt", test_backend(), options);
  const auto mapped = load(kData + "tiny_quant/nvfp4_modelopt", DType::bf16);
  const std::vector<std::int32_t> ids{5, 6, 7};
  const auto a = read->forward(ids, true), b = mapped->forward(ids, true);
  ASSERT_EQ(a.size(), 3u * 320);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
}

// ---- chunks and batches -----------------------------------------------------------------------------------------

std::vector<std::int32_t> some_ids(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>((i * 131 + 17) % vocabulary));
  return ids;
}

class Bits : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  std::string folder() const { return kData + std::get<0>(GetParam()); }
  DType activations() const { return std::get<1>(GetParam()); }
};

TEST_P(Bits, ChunksAndSingleTokensGiveTheBitsOfOneForward) {
  const auto whole = load(folder(), activations()), chunked = load(folder(), activations(), 7);
  const std::vector<std::int32_t> ids = some_ids(40, whole->vocabulary());
  const std::span<const float> expected = whole->forward(ids, true);
  ASSERT_EQ(expected.size(), ids.size() * static_cast<std::size_t>(whole->vocabulary()));
  const std::span<const float> pieces = chunked->forward(ids, true);
  EXPECT_EQ(std::memcmp(pieces.data(), expected.data(), expected.size_bytes()), 0);

  const auto width = static_cast<std::size_t>(whole->vocabulary());
  chunked->reset();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::span<const float> row = chunked->forward({&ids[i], 1}, false);
    ASSERT_EQ(row.size(), width);
    EXPECT_EQ(std::memcmp(row.data(), expected.data() + i * width, width * 4), 0) << "position " << i;
  }
}

TEST_P(Bits, TheLastRowIsTheLastOfAllRows) {
  const auto model = load(folder(), activations(), 16);
  const std::vector<std::int32_t> ids = some_ids(37, model->vocabulary());
  const auto width = static_cast<std::size_t>(model->vocabulary());
  const std::span<const float> all = model->forward(ids, true);
  const std::vector<float> last(all.end() - static_cast<std::ptrdiff_t>(width), all.end());
  model->reset();
  const std::span<const float> row = model->forward(ids, false);
  ASSERT_EQ(row.size(), width);
  EXPECT_EQ(std::memcmp(row.data(), last.data(), width * 4), 0);
}

TEST_P(Bits, ResetForgetsEverything) {
  const auto model = load(folder(), activations());
  const std::vector<std::int32_t> ids = some_ids(20, model->vocabulary());
  const std::span<const float> first = model->forward(ids, false);
  const std::vector<float> expected(first.begin(), first.end());
  model->forward(some_ids(50, model->vocabulary()), true);
  model->reset();
  const std::span<const float> again = model->forward(ids, false);
  EXPECT_EQ(std::memcmp(again.data(), expected.data(), again.size_bytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Bits,
                         ::testing::Combine(::testing::Values("tiny/qwen3_moe", "tiny/qwen3_moe_nonorm_dense0",
                                                              "tiny_quant/nvfp4_modelopt", "tiny_quant/int4_awq"),
                                            ::testing::Values(DType::bf16, DType::f32)));

// ---- misuse -----------------------------------------------------------------------------------------------------

TEST(Decoder, RefusesIdsOutsideTheVocabularyAndPositionsPastTheContext) {
  ModelOptions options;
  options.context = 8;
  const auto model = Model::load(kData + "tiny/qwen3_moe", test_backend(), options);
  EXPECT_EQ(model->context(), 8);
  const std::vector<std::int32_t> eight(8, 1), one{1}, high{320}, negative{-1}, none;
  EXPECT_EQ(error_of([&] { model->forward(high, false); }).first, 2);
  EXPECT_EQ(error_of([&] { model->forward(negative, false); }).first, 2);
  EXPECT_EQ(error_of([&] { model->forward(none, false); }).first, 2);
  EXPECT_EQ(model->forward(eight, false).size(), 320u);
  const auto [code, text] = error_of([&] { model->forward(one, false); });
  EXPECT_EQ(code, 2);
  EXPECT_NE(text.find("context of 8"), std::string::npos) << text;
}

TEST(Decoder, RefusesOptionsOutOfRange) {
  const auto code = [](auto change) {
    ModelOptions options;
    change(options);
    return error_of([&] { Model::load(kData + "tiny/qwen3_moe", test_backend(), options); }).first;
  };
  EXPECT_EQ(code([](ModelOptions&) {}), 0);
  EXPECT_EQ(code([](ModelOptions& o) { o.context = 513; }), 2);
  EXPECT_EQ(code([](ModelOptions& o) { o.context = -1; }), 2);
  EXPECT_EQ(code([](ModelOptions& o) { o.max_tokens = 0; }), 2);
  EXPECT_EQ(code([](ModelOptions& o) { o.activations = DType::f16; }), 2);
}

// ---- config and tensors that disagree -----------------------------------------------------------------------------

struct Disagreement {
  const char* key;
  nlohmann::json value;
  const char* named;  // a tensor or key that the message must name
};

TEST(Decoder, ConfigAndTensorsThatDisagreeAreBadInputNamingTheTensor) {
  const std::string source = kData + "tiny/qwen3_moe";
  const Disagreement cases[] = {
      {"hidden_size", 72, "model.embed_tokens.weight"},
      {"vocab_size", 321, "model.embed_tokens.weight"},
      {"num_attention_heads", 8, "q_proj"},
      {"num_key_value_heads", 4, "k_proj"},
      {"head_dim", 16, "q_norm"},
      {"num_hidden_layers", 3, "model.layers.2"},
      {"moe_intermediate_size", 56, "experts.0"},
      {"num_local_experts", 9, "mlp.gate"},
      {"mlp_only_layers", {0}, "model.layers.0.mlp"},
      {"attention_bias", true, "bias"},
      {"num_experts_per_tok", 9, "num_experts_per_tok"},
      {"num_key_value_heads", 3, "num_key_value_heads"},
  };
  for (const Disagreement& c : cases) {
    TemporaryFolder folder;
    nlohmann::json config = read_json(source + "/config.json");
    config[c.key] = c.value;
    folder.write("config.json", config.dump());
    std::filesystem::copy(source + "/model.safetensors", folder.file("model.safetensors"));
    const auto [code, text] = error_of([&] { load(folder.path(), DType::f32); });
    EXPECT_EQ(code, 4) << c.key << ": " << text;
    EXPECT_NE(text.find(c.named), std::string::npos) << c.key << ": " << text;
  }
}

TEST(Decoder, UnknownArchitecturesListTheKnownOnes) {
  TemporaryFolder folder;
  nlohmann::json config = read_json(kData + "tiny/qwen3_moe/config.json");
  config["architectures"] = {"SomethingElseForCausalLM"};
  folder.write("config.json", config.dump());
  std::filesystem::copy(kData + "tiny/qwen3_moe/model.safetensors", folder.file("model.safetensors"));
  const auto [code, text] = error_of([&] { load(folder.path(), DType::f32); });
  EXPECT_EQ(code, 3);
  EXPECT_NE(text.find("SomethingElseForCausalLM"), std::string::npos) << text;
  EXPECT_NE(text.find("Qwen3MoeForCausalLM"), std::string::npos) << text;
}

TEST(Decoder, ATiedHeadUsesTheEmbedding) {
  // the demo model is tied: its file has no lm_head, and its weights are counted once
  const std::uint64_t table = 4096 * 256 * 2;
  EXPECT_LT(demo_model(DType::bf16).weight_bytes(), 26u * 1000 * 1000 + table / 2);
}

}  // namespace
}  // namespace fourfold::test
