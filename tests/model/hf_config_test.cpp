// config.json in both spellings, its errors, quantisation schemes, stop ids.
#include "model/hf_config.h"

#include <gtest/gtest.h>

#include <set>

#include "checkpoint_fixture.h"
#include "model/generation_config.h"

namespace {

using namespace fixture;
using fourfold::ErrorCode;
using fourfold::load_model_config;
using fourfold::ModelConfig;
using fourfold::parse_model_config;
using fourfold::parse_stop_ids;
using nlohmann::json;

const std::vector<std::string> kKnown{"Qwen3MoeForCausalLM"};

json demo_config() { return json::parse(read_bytes(demo_folder() + "/config.json")); }
ModelConfig parse(const json& config) { return parse_model_config(config.dump(), "config.json"); }

TEST(HfConfig, TheDemoModelReads) {
  const ModelConfig config = load_model_config(demo_folder());
  EXPECT_EQ(config.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(config.layers, 6);
  EXPECT_EQ(config.hidden, 256);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.experts, 24);
  EXPECT_EQ(config.top_k, 4);
  EXPECT_EQ(config.expert_intermediate, 96);
  EXPECT_EQ(config.vocabulary, 4096);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.quantization.has_value());
  fourfold::check_runnable(config, kKnown);
}

TEST(HfConfig, TheOlderSpellingMeansTheSame) {
  json old = demo_config();
  old["num_experts"] = old["num_local_experts"];
  old.erase("num_local_experts");
  old["torch_dtype"] = "torch.bfloat16";
  old.erase("dtype");
  old["rope_theta"] = 10000.0;
  old["rope_scaling"] = nullptr;
  old.erase("rope_parameters");
  old.erase("head_dim");
  const ModelConfig a = parse(demo_config()), b = parse(old);
  EXPECT_EQ(a.experts, b.experts);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.type, b.rope.type);
  EXPECT_EQ(b.head_dim, a.head_dim);
  fourfold::check_runnable(b, kKnown);
}

TEST(HfConfig, EverySmallModelReads) {
  std::set<std::string> architectures;
  for (const char* name : {"deepseek_v3", "glm4_moe", "gpt_oss", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"}) {
    const ModelConfig config = load_model_config(data_folder("tiny/") + name);
    EXPECT_GT(config.experts, 0) << name;
    EXPECT_GT(config.top_k, 0) << name;
    EXPECT_GT(config.expert_intermediate, 0) << name;
    architectures.insert(config.architecture);
    if (config.architecture != kKnown[0])
      expect_error(ErrorCode::unsupported, {config.architecture, kKnown[0]},
                   [&] { fourfold::check_runnable(config, kKnown); });
  }
  EXPECT_EQ(architectures.size(), 7u);
}

TEST(HfConfig, DenseLayersAreWhereTheConfigSays) {
  json config = demo_config();
  config["mlp_only_layers"] = {0, 3};
  config["decoder_sparse_step"] = 2;
  const ModelConfig parsed = parse(config);
  EXPECT_FALSE(parsed.is_moe_layer(0));
  EXPECT_TRUE(parsed.is_moe_layer(1));
  EXPECT_FALSE(parsed.is_moe_layer(2));
  EXPECT_FALSE(parsed.is_moe_layer(3));
  EXPECT_TRUE(parsed.is_moe_layer(5));
}

TEST(HfConfig, AWindowCountsOnlyWhenItIsUsed) {
  json config = demo_config();
  config["sliding_window"] = 128;
  config["use_sliding_window"] = false;
  EXPECT_FALSE(parse(config).sliding_window.has_value());
  config.erase("use_sliding_window");
  EXPECT_EQ(parse(config).sliding_window, 128);
  expect_error(ErrorCode::unsupported, {"sliding_window", "128"},
               [&] { fourfold::check_runnable(parse(config), kKnown); });
}

TEST(HfConfig, WrongValuesAreNamedWithTheirExpectation) {
  struct Row {
    const char* key;
    json value;
    const char* word;
  };
  const std::vector<Row> rows{
      {"hidden_size", "256", "integer"},
      {"hidden_size", -1, "-1"},
      {"hidden_size", 0, "from 1"},
      {"hidden_size", 1.5, "1.5"},
      {"num_hidden_layers", 2000000, "100000"},
      {"num_local_experts", true, "true"},
      {"rms_norm_eps", "x", "positive number"},
      {"rms_norm_eps", 0, "positive number"},
      {"norm_topk_prob", 1, "true or false"},
      {"architectures", "Qwen3", "list of strings"},
      {"architectures", {1}, "list of strings"},
      {"mlp_only_layers", {-1}, "list of layer numbers"},
      {"mlp_only_layers", 3, "list of layer numbers"},
      {"rope_parameters", 3, "object"},
      {"rope_parameters", {{"rope_theta", -1.0}}, "rope_theta"},
      {"dtype", "int8", "int8"},
      {"decoder_sparse_step", 0, "from 1"},
      {"quantization_config", 3, "object"},
      {"quantization_config", json::object(), "quant_method"},
      {"quantization_config", {{"quant_method", "gptq"}, {"bits", "4"}}, "bits"},
      {"quantization_config", {{"quant_method", "awq"}, {"modules_to_not_convert", "lm_head"}}, "list of strings"},
      {"quantization_config", {{"quant_method", "compressed-tensors"}, {"ignore", {"re:("}}}, "regular expression"},
      {"vocab_size", 18446744073709551615ull, "18446744073709551615"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.key) + " = " + row.value.dump());
    json config = demo_config();
    config[row.key] = row.value;
    expect_error(ErrorCode::bad_input, {"config.json", row.key, row.word}, [&] { parse(config); });
  }
}

TEST(HfConfig, SizesWhoseProductOverflowsAreRefused) {
  for (const auto& [a, b] :
       std::vector<std::pair<const char*, const char*>>{{"vocab_size", "hidden_size"},
                                                        {"num_local_experts", "moe_intermediate_size"},
                                                        {"num_attention_heads", "head_dim"},
                                                        {"max_position_embeddings", "num_key_value_heads"}}) {
    json config = demo_config();
    config[a] = std::int64_t{1} << 38;
    config[b] = std::int64_t{1} << 38;
    expect_error(ErrorCode::bad_input, {"2^63"}, [&] { parse(config); });
  }
}

TEST(HfConfig, TextThatIsNoJsonObjectIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}\0{}", 5),
        std::string(R"({"hidden_size":1,"hidden_size":2})"), std::string("\xff"), std::string(300, '[')})
    expect_error(ErrorCode::bad_input, {"config.json"}, [&] { parse_model_config(text, "config.json"); });
}

TEST(HfConfig, WhatCannotRunIsNamed) {
  struct Row {
    const char* key;
    json value;
    const char* word;
    ErrorCode code = ErrorCode::bad_input;
  };
  for (const Row& row : std::vector<Row>{{"rope_parameters", {{"rope_type", "yarn"}}, "yarn", ErrorCode::unsupported},
                                         {"hidden_act", "gelu", "gelu", ErrorCode::unsupported},
                                         {"num_experts_per_tok", 25, "25"},
                                         {"num_key_value_heads", 3, "multiple"},
                                         {"vocab_size", nullptr, "vocab_size"},
                                         {"num_local_experts", 0, "num_experts"},
                                         {"rms_norm_eps", nullptr, "rms_norm_eps"}}) {
    json config = demo_config();
    config[row.key] = row.value;
    expect_error(row.code, {row.word}, [&] { fourfold::check_runnable(parse(config), kKnown); });
  }
}

TEST(HfConfig, QuantisationSchemesRead) {
  const auto scheme = [](const char* name) {
    return *load_model_config(data_folder("tiny_quant/") + name).quantization;
  };
  EXPECT_EQ(scheme("int4_awq").method, "awq");
  EXPECT_EQ(scheme("int4_awq").group_size, 32);
  EXPECT_FALSE(scheme("int4_awq").symmetric);
  EXPECT_TRUE(scheme("int4_gptq").symmetric);
  EXPECT_FALSE(scheme("int4_gptq").act_order);
  EXPECT_EQ(scheme("int4_compressed_tensors").bits, 4);
  EXPECT_EQ(scheme("int4_compressed_tensors").group_size, 32);
  EXPECT_EQ(scheme("nvfp4_compressed_tensors").format, "nvfp4-pack-quantized");
  EXPECT_EQ(scheme("nvfp4_modelopt").format, "NVFP4");
  EXPECT_EQ(scheme("mxfp4_gpt_oss").method, "mxfp4");
}

TEST(HfConfig, ModelOptsOwnFileIsReadWhenTheConfigSaysNothing) {
  const std::string own = R"({"quantization":{"quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head"]}})";
  const ModelConfig config = parse_model_config(demo_config().dump(), "config.json", own);
  ASSERT_TRUE(config.quantization.has_value());
  EXPECT_EQ(config.quantization->method, "modelopt");
  EXPECT_TRUE(config.quantization->ignores("lm_head"));
  expect_error(ErrorCode::bad_input, {"hf_quant_config.json"},
               [&] { parse_model_config(demo_config().dump(), "config.json", "{}"); });
}

TEST(HfConfig, IgnoreListsMatchNamesParentsGlobsAndExpressions) {
  json config = demo_config();
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"ignore", {"lm_head", "re:.*mlp.gate$", "*layers.1.*", "model.layers.2", "self_attn"}}};
  const auto quantization = *parse(config).quantization;
  EXPECT_TRUE(quantization.ignores("lm_head"));
  EXPECT_TRUE(quantization.ignores("model.layers.0.mlp.gate"));
  EXPECT_FALSE(quantization.ignores("model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(quantization.ignores("model.layers.0.mlp.experts.0.gate_proj"));
  EXPECT_TRUE(quantization.ignores("model.layers.1.mlp.experts.0.gate_proj"));
  EXPECT_TRUE(quantization.ignores("model.layers.2.mlp.experts.0.gate_proj"));
  EXPECT_FALSE(quantization.ignores("model.layers.22.mlp.experts.0.gate_proj"));
  EXPECT_TRUE(quantization.ignores("model.layers.0.self_attn.q_proj"));
}

TEST(GenerationConfig, EightPairsGiveTheirStopIds) {
  using Ids = std::vector<std::int32_t>;
  const auto text = [](const json& value) { return json{{"eos_token_id", value}}.dump(); };
  struct Row {
    std::string config, generation;
    Ids expected;
  };
  const std::vector<Row> rows{
      {text(2), text(json::array({128131, 2})), {2, 128131}},  // the generation file wins
      {text(json::array({2, 128131})), text(7), {7}},
      {text(2), text(nullptr), {}},                          // null says: none
      {text(2), "{}", {2}},                                  // absent says nothing
      {text(json::array({128131, 2, 2})), "", {2, 128131}},  // no generation file
      {text(nullptr), text(0), {0}},
      {text(nullptr), "{}", {}},
      {"{}", "{}", {}},
  };
  for (const Row& row : rows)
    EXPECT_EQ(parse_stop_ids(row.config, row.generation), row.expected) << row.config << " " << row.generation;
  EXPECT_EQ(rows.size(), 8u);
}

TEST(GenerationConfig, AnythingElseIsRefused) {
  for (const char* value : {"-1", "2.0", "\"2\"", "[2,null]", "2147483648", "{}", "true"})
    expect_error(ErrorCode::bad_input, {"generation_config.json", "eos_token_id"},
                 [&] { parse_stop_ids("{}", std::string(R"({"eos_token_id":)") + value + "}"); });
}

TEST(GenerationConfig, TheDemoModelStopsAtItsEndOfText) {
  EXPECT_EQ(fourfold::load_stop_ids(demo_folder()), std::vector<std::int32_t>{0});
}

}  // namespace
