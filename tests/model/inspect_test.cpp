// inspect_checkpoint: what it says of every small checkpoint.
#include <gtest/gtest.h>

#include "checkpoint_fixture.h"
#include "fourfold/model.h"

namespace {

using namespace fixture;
using fourfold::CheckpointInfo;
using fourfold::ErrorCode;
using fourfold::inspect_checkpoint;

TEST(Inspect, TheDemoModel) {
  const CheckpointInfo info = inspect_checkpoint(demo_folder());
  EXPECT_TRUE(info.has_config);
  EXPECT_EQ(info.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(info.layers, 6);
  EXPECT_EQ(info.experts, 24);
  EXPECT_EQ(info.top_k, 4);
  EXPECT_EQ(info.expert_intermediate, 96);
  EXPECT_EQ(info.total_bytes, 25772032u);
  EXPECT_EQ(info.expert_bytes, 6u * 24 * 3 * 256 * 96 * 2);
  EXPECT_EQ(info.quantization, "none (BF16)");
  ASSERT_EQ(info.bytes_by_dtype.size(), 1u);
  EXPECT_EQ(info.bytes_by_dtype[0].first, "BF16");
}

TEST(Inspect, EveryLayoutByName) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"nvfp4_modelopt", "nvfp4 (ModelOpt)"},
      {"nvfp4_compressed_tensors", "nvfp4 (compressed-tensors)"},
      {"int4_compressed_tensors", "int4 g32 (compressed-tensors)"},
      {"int4_gptq", "int4 g32 (GPTQ)"},
      {"int4_awq", "int4 g32 asymmetric (AWQ)"},
      {"mxfp4_gpt_oss", "mxfp4 (gpt-oss)"}};
  for (const auto& [folder, text] : rows)
    EXPECT_EQ(inspect_checkpoint(data_folder("tiny_quant/") + folder).quantization, text);
}

TEST(Inspect, ArchitecturesThatDoNotRunCanBeLookedAt) {
  for (const char* name : {"deepseek_v3", "glm4_moe", "gpt_oss", "mixtral", "olmoe", "qwen2_moe"}) {
    const CheckpointInfo info = inspect_checkpoint(data_folder("tiny/") + name);
    EXPECT_EQ(info.quantization, "none (BF16)") << name;
    EXPECT_GT(info.expert_bytes, 0u) << name;
    EXPECT_GT(info.experts, 0) << name;
  }
}

TEST(Inspect, ASingleFileHasNoConfig) {
  const CheckpointInfo info = inspect_checkpoint(data_folder("tiny_quant/nvfp4_modelopt/model.safetensors"));
  EXPECT_FALSE(info.has_config);
  EXPECT_EQ(info.architecture, "");
  EXPECT_NE(info.quantization.find("nvfp4 (ModelOpt)"), std::string::npos);
  EXPECT_GT(info.tensors.size(), 100u);
}

TEST(Inspect, DamageIsReported) {
  const TemporaryFolder folder;
  write_bytes(folder / "bad.safetensors", "short");
  expect_error(ErrorCode::bad_input, {"bad.safetensors"}, [&] { inspect_checkpoint(folder / "bad.safetensors"); });
  expect_error(ErrorCode::bad_input, {"neither"}, [&] { inspect_checkpoint(folder.string()); });
  Editable model(data_folder("tiny/qwen3_moe"));
  model.save(folder / "m");
  write_bytes(folder / "m/config.json", "{");
  expect_error(ErrorCode::bad_input, {"config.json"}, [&] { inspect_checkpoint(folder / "m"); });
}

}  // namespace
