// What planning reads of a model: configs of several families, without weights and with.
#include <gtest/gtest.h>

#include <fstream>

#include "fourfold/error.h"
#include "fourfold/model.h"
#include "support/temporary_folder.h"

namespace fourfold {
namespace {

ModelShape shape_of(const std::string& config) {
  const support::TemporaryFolder folder;
  const std::string file = folder.file("config.json");
  std::ofstream(file) << config;
  return read_model_shape(file);
}

constexpr const char* kLatent = R"({"architectures": ["GlmMoeDsaForCausalLM"], "hidden_act": "silu",
  "num_hidden_layers": 78, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "hidden_size": 6144,
  "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "num_attention_heads": 64,
  "num_key_value_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
  "quantization_config": {"quant_method": "exl3", "bits": 3.42}})";

TEST(ModelShape, LatentAttentionIsCachedWholeOnEveryRank) {
  const ModelShape shape = shape_of(kLatent);
  EXPECT_EQ(shape.architecture, "GlmMoeDsaForCausalLM");
  EXPECT_EQ(shape.layers, 78);
  EXPECT_EQ(shape.moe_layers, 75);
  EXPECT_EQ(shape.draft_layers, 1);
  EXPECT_EQ(shape.experts, 256);
  EXPECT_EQ(shape.top_k, 8);
  EXPECT_EQ(shape.expert_intermediate, 2048);
  EXPECT_EQ(shape.kv_values(1), 576);
  EXPECT_EQ(shape.kv_values(4), 576);
  EXPECT_EQ(shape.format, "exl3 b4");  // 3.42 rounded up
  EXPECT_EQ(shape.activation, "silu");
  EXPECT_EQ(shape.file_bytes, 0u);
}

TEST(ModelShape, GroupedHeadsAreSplitOverRanks) {
  const ModelShape shape = shape_of(R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_act": "silu",
    "num_hidden_layers": 48, "hidden_size": 2048, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true}})");
  EXPECT_EQ(shape.moe_layers, 48);
  EXPECT_EQ(shape.kv_values(1), 2 * 4 * 128);
  EXPECT_EQ(shape.kv_values(4), 2 * 128);
  EXPECT_EQ(shape.kv_values(8), 2 * 128);  // a head has no half
  EXPECT_EQ(shape.format, "int4 g128 zp");
}

TEST(ModelShape, GptOssHasBiasesAndItsOwnActivation) {
  const ModelShape shape = shape_of(R"({"architectures": ["GptOssForCausalLM"], "hidden_act": "silu",
    "num_hidden_layers": 36, "hidden_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4,
    "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "quantization_config": {"quant_method": "mxfp4"}})");
  EXPECT_EQ(shape.activation, "swiglu_oai");
  EXPECT_TRUE(shape.biases);
  EXPECT_EQ(shape.format, "mxfp4");
  EXPECT_EQ(shape.expert_intermediate, 2880);
}

TEST(ModelShape, AFolderWithWeightsAddsTheirBytes) {
  const ModelShape shape = read_model_shape(FOURFOLD_SOURCE_DIR "/models/moe-13m");
  EXPECT_GT(shape.file_expert_bytes, 0u);
  EXPECT_GT(shape.file_bytes, shape.file_expert_bytes);
  EXPECT_EQ(shape.format, "");  // not quantised
}

void expect_error(const std::string& config, ErrorCode code, const std::string& says) {
  try {
    shape_of(config);
    ADD_FAILURE() << config;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(ModelShape, AModelWithoutExpertsIsSaid) {
  expect_error(R"({"num_hidden_layers": 4, "hidden_size": 64})", ErrorCode::bad_input, "num_experts");
  expect_error(R"({"num_hidden_layers": 2, "hidden_size": 64, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "first_k_dense_replace": 2})",
               ErrorCode::bad_input, "none of the 2 layers");
  expect_error("{", ErrorCode::bad_input, "config.json");
}

TEST(ModelShape, AnActivationWithoutAWordIsSaid) {
  expect_error(R"({"num_hidden_layers": 2, "hidden_size": 64, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "hidden_act": "quick_gelu"})",
               ErrorCode::unsupported, "quick_gelu");
}

TEST(ModelShape, AFileThatIsNotThereIsBadInput) {
  try {
    read_model_shape("/nonexistent/config.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
  }
}

}  // namespace
}  // namespace fourfold
