// Every expert layout against a decode written here from its description, and what must be refused.
#include "model/expert_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "checkpoint_fixture.h"
#include "formats/dequantize.h"
#include "oracle/format_oracle.h"

namespace {

using namespace fixture;
using namespace fourfold;

const char* const kPrefix = "model.layers.0.mlp.experts";
constexpr std::int64_t kSize = 64, kExperts = 6;  // hidden and intermediate alike

const std::string& bytes_at(const RawTensors& tensors, const std::string& name) {
  const auto at = tensors.find(name);
  if (at == tensors.end()) throw std::runtime_error("test data lacks " + name);
  return at->second.bytes;
}
template <class T>
T value_at(const std::string& bytes, std::int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}
int nibble_at(const std::string& bytes, std::int64_t word, int nibble) {
  return static_cast<int>(value_at<std::uint32_t>(bytes, word) >> (4 * nibble) & 15u);
}
double e2m1_at(const std::string& bytes, std::int64_t position) {
  const unsigned byte = value_at<std::uint8_t>(bytes, position / 2);
  return oracle::value_of(oracle::kE2m1, position % 2 == 0 ? byte & 15u : byte >> 4);
}

/// Weight (n, k) of the module, from the raw tensors.
using Decode = std::function<float(const RawTensors&, const std::string& module, std::int64_t n, std::int64_t k)>;

float decode_nvfp4(const RawTensors& t, const std::string& codes, const std::string& module, float global,
                   std::int64_t n, std::int64_t k) {
  const double scale = oracle::value_of(
      oracle::kE4m3, value_at<std::uint8_t>(bytes_at(t, module + ".weight_scale"), n * kSize / 16 + k / 16));
  return static_cast<float>(e2m1_at(bytes_at(t, module + codes), n * kSize + k) * scale) * global;
}
float decode_modelopt(const RawTensors& t, const std::string& m, std::int64_t n, std::int64_t k) {
  return decode_nvfp4(t, ".weight", m, value_at<float>(bytes_at(t, m + ".weight_scale_2"), 0), n, k);
}
float decode_compressed_nvfp4(const RawTensors& t, const std::string& m, std::int64_t n, std::int64_t k) {
  return decode_nvfp4(t, ".weight_packed", m, 1.0f / value_at<float>(bytes_at(t, m + ".weight_global_scale"), 0), n, k);
}
float decode_compressed_int4(const RawTensors& t, const std::string& m, std::int64_t n, std::int64_t k) {
  const int q = nibble_at(bytes_at(t, m + ".weight_packed"), n * kSize / 8 + k / 8, static_cast<int>(k % 8)) - 8;
  const double scale = oracle::value_of(
      oracle::kBf16, value_at<std::uint16_t>(bytes_at(t, m + ".weight_scale"), n * kSize / 32 + k / 32));
  return static_cast<float>(q * scale);
}
float decode_gptq(const RawTensors& t, const std::string& m, std::int64_t n, std::int64_t k) {
  const int code = nibble_at(bytes_at(t, m + ".qweight"), k / 8 * kSize + n, static_cast<int>(k % 8));
  const int zero = nibble_at(bytes_at(t, m + ".qzeros"), k / 32 * kSize / 8 + n / 8, static_cast<int>(n % 8)) + 1;
  const double scale =
      oracle::value_of(oracle::kF16, value_at<std::uint16_t>(bytes_at(t, m + ".scales"), k / 32 * kSize + n));
  return static_cast<float>((code - zero) * scale);
}
float decode_awq(const RawTensors& t, const std::string& m, std::int64_t n, std::int64_t k) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  int nibble = 0;
  while (kOrder[nibble] != n % 8) ++nibble;
  const int code = nibble_at(bytes_at(t, m + ".qweight"), k * kSize / 8 + n / 8, nibble);
  const int zero = nibble_at(bytes_at(t, m + ".qzeros"), k / 32 * kSize / 8 + n / 8, nibble);
  const double scale =
      oracle::value_of(oracle::kF16, value_at<std::uint16_t>(bytes_at(t, m + ".scales"), k / 32 * kSize + n));
  return static_cast<float>((code - zero) * scale);
}

struct Experts {
  std::vector<float> gate = std::vector<float>(kSize * kSize), up = gate, down = gate;
};
Experts read(const Checkpoint& checkpoint, const ModelConfig& config, std::int64_t expert,
             const std::string& prefix = kPrefix) {
  Experts e;
  read_expert_f32(checkpoint, config, prefix, expert, {e.gate, e.up, e.down});
  return e;
}
Experts dequantised(const ExpertMatrices& m, const FormatSpec& format) {
  Experts e;
  dequantize(m.gate, kSize, kSize, format, e.gate.data());
  dequantize(m.up, kSize, kSize, format, e.up.data());
  dequantize(m.down, kSize, kSize, format, e.down.data());
  return e;
}

struct Layout {
  const char* folder;
  Decode decode;
  FormatSpec format;
  const char* name;
};
std::vector<Layout> layouts() {
  return {{"nvfp4_modelopt", decode_modelopt, FormatSpec::nvfp4(), "nvfp4 (ModelOpt)"},
          {"nvfp4_compressed_tensors", decode_compressed_nvfp4, FormatSpec::nvfp4(), "nvfp4 (compressed-tensors)"},
          {"int4_compressed_tensors", decode_compressed_int4, FormatSpec::int4(32), "int4 g32 (compressed-tensors)"},
          {"int4_gptq", decode_gptq, FormatSpec::int4(32), "int4 g32 (GPTQ)"},
          {"int4_awq", decode_awq, FormatSpec::int4(32, true), "int4 g32 asymmetric (AWQ)"}};
}

TEST(ExpertReader, EveryLayoutEqualsItsDecodeInBothReadModes) {
  for (const Layout& layout : layouts())
    for (bool memory_map : {true, false}) {
      SCOPED_TRACE(layout.folder);
      const std::string folder = data_folder("tiny_quant/") + layout.folder;
      const RawTensors raw = load_raw(folder + "/model.safetensors");
      const auto checkpoint = Checkpoint::open(folder, memory_map);
      const ModelConfig config = load_model_config(folder);
      const ExpertLayerInfo info = describe_experts(*checkpoint, config, kPrefix);
      EXPECT_TRUE(info.quantised);
      EXPECT_EQ(info.format, layout.format);
      EXPECT_EQ(info.layout_name, layout.name);
      EXPECT_FALSE(info.gate_up_bias || info.down_bias);
      const auto source = expert_source(*checkpoint, config, kPrefix);
      std::int64_t compared = 0, different = 0;
      for (std::int64_t e = 0; e < kExperts; ++e) {
        const Experts a = read(*checkpoint, config, e), b = dequantised(source->expert(e), info.format);
        const std::string base = std::string(kPrefix) + "." + std::to_string(e);
        for (std::int64_t i = 0; i < kSize * kSize; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const float gate = layout.decode(raw, base + ".gate_proj", i / kSize, i % kSize);
          const float up = layout.decode(raw, base + ".up_proj", i / kSize, i % kSize);
          const float down = layout.decode(raw, base + ".down_proj", i / kSize, i % kSize);
          different += !(a.gate[at] == gate && b.gate[at] == gate) + !(a.up[at] == up && b.up[at] == up) +
                       !(a.down[at] == down && b.down[at] == down);
          compared += 3;
        }
      }
      EXPECT_EQ(different, 0);
      EXPECT_EQ(compared, kExperts * 3 * kSize * kSize);
    }
}

TEST(ExpertReader, GateAndUpKeepTheirOwnGlobalScales) {
  const std::string folder = data_folder("tiny_quant/nvfp4_modelopt");
  const RawTensors raw = load_raw(folder + "/model.safetensors");
  const auto checkpoint = Checkpoint::open(folder);
  const auto source = expert_source(*checkpoint, load_model_config(folder), kPrefix);
  int different = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const ExpertMatrices m = source->expert(e);
    const std::string base = std::string(kPrefix) + "." + std::to_string(e);
    EXPECT_EQ(m.gate.global_scale, value_at<float>(bytes_at(raw, base + ".gate_proj.weight_scale_2"), 0));
    EXPECT_EQ(m.up.global_scale, value_at<float>(bytes_at(raw, base + ".up_proj.weight_scale_2"), 0));
    EXPECT_EQ(m.down.global_scale, value_at<float>(bytes_at(raw, base + ".down_proj.weight_scale_2"), 0));
    different += m.gate.global_scale != m.up.global_scale;
  }
  EXPECT_GT(different, 0);
}

/// gpt-oss: row 2i is gate i, row 2i + 1 is up i.
void expect_gpt_oss_decodes(const std::string& folder, const RawTensors& raw, bool memory_map) {
  const auto checkpoint = Checkpoint::open(folder, memory_map);
  const ModelConfig config = load_model_config(folder);
  const ExpertLayerInfo info = describe_experts(*checkpoint, config, kPrefix);
  EXPECT_EQ(info.format, FormatSpec::mxfp4());
  EXPECT_TRUE(info.gate_up_bias && info.down_bias);
  const auto source = expert_source(*checkpoint, config, kPrefix);
  const std::string base = kPrefix;
  const auto weight = [&](const char* proj, std::int64_t rows, std::int64_t e, std::int64_t row, std::int64_t k) {
    const std::int64_t position = (e * rows + row) * kSize + k;
    const auto exponent = value_at<std::uint8_t>(bytes_at(raw, base + "." + proj + "_scales"), position / 32);
    return static_cast<float>(e2m1_at(bytes_at(raw, base + "." + proj + "_blocks"), position) * oracle::e8m0(exponent));
  };
  const auto bias = [&](const char* proj, std::int64_t index) {
    return static_cast<float>(
        oracle::value_of(oracle::kBf16, value_at<std::uint16_t>(bytes_at(raw, base + "." + proj + "_bias"), index)));
  };
  std::int64_t different = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const ExpertMatrices m = source->expert(e);
    const Experts a = read(*checkpoint, config, e), b = dequantised(m, info.format);
    std::vector<float> gate(kSize), up(kSize), down(kSize);
    read_expert_bias_f32(*checkpoint, config, kPrefix, e, {gate, up, down});
    for (std::int64_t n = 0; n < kSize; ++n) {
      for (std::int64_t k = 0; k < kSize; ++k) {
        const auto at = static_cast<std::size_t>(n * kSize + k);
        different += a.gate[at] != weight("gate_up_proj", 2 * kSize, e, 2 * n, k);
        different += a.up[at] != weight("gate_up_proj", 2 * kSize, e, 2 * n + 1, k);
        different += a.down[at] != weight("down_proj", kSize, e, n, k);
        different += a.gate[at] != b.gate[at] || a.up[at] != b.up[at] || a.down[at] != b.down[at];
      }
      const auto row = static_cast<std::size_t>(n);
      different += gate[row] != bias("gate_up_proj", e * 2 * kSize + 2 * n);
      different += up[row] != bias("gate_up_proj", e * 2 * kSize + 2 * n + 1);
      different += down[row] != bias("down_proj", e * kSize + n);
      std::uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const std::byte*>(m.up.bias) + n * m.up.bias_stride_bytes, 2);
      different += static_cast<float>(oracle::value_of(oracle::kBf16, bits)) != up[row];
    }
  }
  EXPECT_EQ(different, 0);
}

TEST(ExpertReader, GptOssDecodesInBothReadModes) {
  const std::string folder = data_folder("tiny_quant/mxfp4_gpt_oss");
  for (bool memory_map : {true, false})
    expect_gpt_oss_decodes(folder, load_raw(folder + "/model.safetensors"), memory_map);
}

TEST(ExpertReader, ExponentBytesMeanTheSameUnderBothDtypes) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny_quant/mxfp4_gpt_oss"));
  for (auto& [name, tensor] : model.tensors)
    if (name.ends_with("_scales")) tensor.dtype = "F8_E8M0";
  model.save(folder.string());
  expect_gpt_oss_decodes(folder.string(), model.tensors, true);
}

/// Changes a tiny checkpoint, then describes its first layer and reads every expert.
void expect_refused(const std::string& source, const std::function<void(Editable&)>& change, ErrorCode code,
                    std::initializer_list<std::string> words) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny_quant/") + source);
  change(model);
  model.save(folder.string());
  expect_error(code, words, [&] {
    const auto checkpoint = Checkpoint::open(folder.string());
    const ModelConfig config = load_model_config(folder.string());
    const auto experts = expert_source(*checkpoint, config, kPrefix);
    for (std::int64_t e = 0; e < kExperts; ++e) experts->expert(e);
  });
}

TEST(ExpertReader, SixDamagedGlobalScalesAreRefused) {
  for (const auto& [folder, ending] :
       {std::pair{"nvfp4_modelopt", "weight_scale_2"}, std::pair{"nvfp4_compressed_tensors", "weight_global_scale"}}) {
    const std::string name = std::string(kPrefix) + ".3.up_proj." + ending;
    for (float value : {0.0f, 1e-40f, NAN, -1.0f, INFINITY}) {
      SCOPED_TRACE(value);
      expect_refused(folder, [&](Editable& model) { model.tensors[name].bytes = bytes_of({value}); },
                     ErrorCode::bad_input, {name, "normal positive"});
    }
    expect_refused(folder, [&](Editable& model) { model.tensors.erase(name); }, ErrorCode::bad_input, {name, "absent"});
  }
}

TEST(ExpertReader, EveryMissingTensorIsListed) {
  const std::string a = std::string(kPrefix) + ".1.gate_proj.weight_scale",
                    b = std::string(kPrefix) + ".4.down_proj.weight",
                    c = std::string(kPrefix) + ".5.up_proj.weight_scale_2";
  expect_refused("nvfp4_modelopt",
                 [&](Editable& model) {
                   for (const auto& name : {a, b, c}) model.tensors.erase(name);
                 },
                 ErrorCode::bad_input, {a, b, c});
}

TEST(ExpertReader, ActivationScalesAreNotNeeded) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny_quant/nvfp4_modelopt"));
  std::size_t erased = std::erase_if(model.tensors, [](const auto& t) { return t.first.ends_with(".input_scale"); });
  EXPECT_EQ(erased, 36u);
  model.save(folder.string());
  EXPECT_TRUE(
      describe_experts(*Checkpoint::open(folder.string()), load_model_config(folder.string()), kPrefix).quantised);
}

TEST(ExpertReader, WhatDisagreesIsRefused) {
  const std::string gate = std::string(kPrefix) + ".2.gate_proj";
  const ErrorCode bad = ErrorCode::bad_input;
  // Bytes without a linear meaning under a scheme of linear scales.
  expect_refused("nvfp4_modelopt", [&](Editable& m) { m.tensors[gate + ".weight_scale"].dtype = "U8"; }, bad,
                 {gate + ".weight_scale", "U8"});
  expect_refused("nvfp4_modelopt",
                 [&](Editable& m) {
                   m.tensors[gate + ".weight_scale"].shape = {128, 2};
                 },
                 bad, {"[64, 4]"});
  expect_refused("nvfp4_modelopt",
                 [&](Editable& m) {
                   m.tensors[gate + ".weight"].shape = {32, 64};
                 },
                 bad, {"[64, 32]"});
  // The scheme says another layout, or none.
  expect_refused("nvfp4_modelopt",
                 [&](Editable& m) { m.config["quantization_config"]["quant_method"] = "compressed-tensors"; }, bad,
                 {"compressed-tensors", "ModelOpt"});
  expect_refused("int4_gptq", [&](Editable& m) { m.config["quantization_config"]["quant_method"] = "awq"; }, bad,
                 {"'awq'", "GPTQ"});
  expect_refused("int4_awq", [&](Editable& m) { m.config.erase("quantization_config"); }, bad, {"quantization_config"});
  // Packed although the list says not.
  expect_refused("nvfp4_modelopt",
                 [&](Editable& m) { m.config["quantization_config"]["ignore"].push_back("*experts*"); }, bad,
                 {"not quantised"});
  // Group sizes.
  expect_refused("int4_awq", [&](Editable& m) { m.config["quantization_config"]["group_size"] = 16; }, bad,
                 {"groups of 16"});
  expect_refused("nvfp4_modelopt", [&](Editable& m) { m.config["quantization_config"]["group_size"] = 32; }, bad,
                 {"group size 32"});
  expect_refused("int4_gptq", [&](Editable& m) { m.config["quantization_config"]["bits"] = 8; }, ErrorCode::unsupported,
                 {"8 bits"});
  // Two meanings at once.
  expect_refused("nvfp4_modelopt",
                 [&](Editable& m) { m.tensors[gate + ".weight_packed"] = m.tensors[gate + ".weight"]; }, bad,
                 {"ambiguous"});
  // Sizes of the config against the tensors.
  expect_refused("nvfp4_modelopt", [&](Editable& m) { m.config["moe_intermediate_size"] = 128; }, bad, {"[128, 32]"});
  expect_refused("nvfp4_modelopt", [&](Editable& m) { m.config["num_local_experts"] = 8; }, bad,
                 {"experts.6", "experts.7"});
}

TEST(ExpertReader, ActOrderIsRefusedByName) {
  const std::string name = std::string(kPrefix) + ".0.up_proj.g_idx";
  expect_refused("int4_gptq",
                 [&](Editable& m) {
                   std::string& bytes = m.tensors[name].bytes;
                   std::swap_ranges(bytes.begin(), bytes.begin() + 4, bytes.begin() + 4 * 40);
                 },
                 ErrorCode::unsupported, {"act-order"});
}

TEST(ExpertReader, AZeroPointThatContradictsTheConfigIsRefused) {
  expect_refused("int4_gptq",
                 [&](Editable& m) { m.tensors[std::string(kPrefix) + ".0.up_proj.qzeros"].bytes[0] = '\x12'; },
                 ErrorCode::bad_input, {"symmetric"});
}

TEST(ExpertReader, UnquantisedExpertsReadAsTheyAre) {
  const std::string folder = data_folder("tiny/qwen3_moe");
  const RawTensors raw = load_raw(folder + "/model.safetensors");
  const auto checkpoint = Checkpoint::open(folder);
  const ModelConfig config = load_model_config(folder);
  const ExpertLayerInfo info = describe_experts(*checkpoint, config, kPrefix);
  EXPECT_FALSE(info.quantised);
  EXPECT_EQ(info.source_dtype, DType::bf16);
  EXPECT_EQ(info.layout_name, "none (BF16)");
  std::vector<float> gate(48 * 64), up = gate, down = gate;
  read_expert_f32(*checkpoint, config, kPrefix, 7, {gate, up, down});
  for (std::int64_t i = 0; i < 48 * 64; ++i)
    ASSERT_EQ(down[static_cast<std::size_t>(i)],
              oracle::value_of(oracle::kBf16, value_at<std::uint16_t>(
                                                  bytes_at(raw, std::string(kPrefix) + ".7.down_proj.weight"), i)));
  expect_error(ErrorCode::unsupported, {"none (BF16)"}, [&] { expert_source(*checkpoint, config, kPrefix); });
}

TEST(ExpertReader, MixtralsSpellingReads) {
  const std::string folder = data_folder("tiny/mixtral");
  const auto checkpoint = Checkpoint::open(folder);
  const ExpertLayerInfo info =
      describe_experts(*checkpoint, load_model_config(folder), "model.layers.1.block_sparse_moe.experts");
  EXPECT_EQ(info.layout_name, "none (BF16)");
}

TEST(ExpertReader, BlockScaledFp8Reads) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny/qwen3_moe"));
  model.config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {32, 16}}};
  for (std::int64_t e = 0; e < 8; ++e)
    for (const char* proj : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string module = std::string(kPrefix) + "." + std::to_string(e) + "." + proj;
      RawTensor& weight = model.tensors[module + ".weight"];
      weight.dtype = "F8_E4M3";
      weight.bytes.resize(48 * 64);
      for (std::size_t i = 0; i < weight.bytes.size(); ++i) weight.bytes[i] = static_cast<char>(i % 127);
      const std::int64_t rows = (weight.shape[0] + 31) / 32, columns = weight.shape[1] / 16;
      std::string scales;
      for (std::int64_t i = 0; i < rows * columns; ++i) scales += bytes_of({0.5f + static_cast<float>(i)});
      model.tensors[module + ".weight_scale_inv"] = {"F32", {rows, columns}, scales};
    }
  model.save(folder.string());
  const auto checkpoint = Checkpoint::open(folder.string());
  const ModelConfig config = load_model_config(folder.string());
  EXPECT_EQ(describe_experts(*checkpoint, config, kPrefix).source_dtype, DType::f8_e4m3);
  std::vector<float> gate(48 * 64), up = gate, down = gate;
  read_expert_f32(*checkpoint, config, kPrefix, 3, {gate, up, down});
  for (std::int64_t n = 0; n < 48; ++n)
    for (std::int64_t k = 0; k < 64; ++k) {
      const std::int64_t i = n * 64 + k;
      const double scale = 0.5 + static_cast<double>(n / 32 * 4 + k / 16);
      ASSERT_EQ(gate[static_cast<std::size_t>(i)],
                oracle::value_of(oracle::kE4m3, static_cast<std::uint32_t>(i % 127)) * scale);
    }
}

/// Packs [rows, 64] zeros as ModelOpt NVFP4 under `module`.
void pack_zeros(RawTensors& tensors, const std::string& module, std::int64_t rows) {
  const auto n = static_cast<std::size_t>(rows);
  tensors[module + ".weight"] = {"U8", {rows, 32}, std::string(n * 32, '\0')};
  tensors[module + ".weight_scale"] = {"F8_E4M3", {rows, 4}, std::string(n * 4, '\x38')};
  tensors[module + ".weight_scale_2"] = {"F32", {}, bytes_of({1.0f})};
}

TEST(ExpertReader, LayersAndRoutersMayDifferInAllFourCombinations) {
  for (bool second_layer_packed : {true, false})
    for (bool router_packed : {true, false}) {
      const TemporaryFolder folder;
      Editable model(data_folder("tiny_quant/nvfp4_modelopt"));
      const std::string second = "model.layers.1.mlp.experts", router = "model.layers.0.mlp.gate";
      if (!second_layer_packed) {
        std::erase_if(model.tensors, [&](const auto& t) { return t.first.starts_with(second + "."); });
        for (std::int64_t e = 0; e < kExperts; ++e)
          for (const char* proj : {"gate_proj", "up_proj", "down_proj"})
            model.tensors[second + "." + std::to_string(e) + "." + proj + ".weight"] = {
                "BF16", {kSize, kSize}, std::string(kSize * kSize * 2, '\x3f')};
      }
      if (router_packed) {
        model.config["quantization_config"]["ignore"] = {"lm_head", "*self_attn*"};
        pack_zeros(model.tensors, router, kExperts);
      }
      model.save(folder.string());
      const auto checkpoint = Checkpoint::open(folder.string());
      const ModelConfig config = load_model_config(folder.string());
      EXPECT_TRUE(describe_experts(*checkpoint, config, kPrefix).quantised);
      EXPECT_EQ(describe_experts(*checkpoint, config, second).quantised, second_layer_packed);
      EXPECT_EQ(describe_linear(*checkpoint, config, router, kExperts, kSize).quantised(), router_packed);
      std::vector<float> weights(kExperts * kSize, -1.0f);
      read_linear_f32(*checkpoint, config, router, kExperts, kSize, weights);
      EXPECT_EQ(std::count(weights.begin(), weights.end(), 0.0f) == kExperts * kSize, router_packed);
    }
}

TEST(ExpertReader, APackedRouterOnTheExcludeListIsAConflict) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny_quant/nvfp4_modelopt"));
  pack_zeros(model.tensors, "model.layers.0.mlp.gate", kExperts);
  model.save(folder.string());
  const auto checkpoint = Checkpoint::open(folder.string());
  expect_error(ErrorCode::bad_input, {"mlp.gate", "not quantised"}, [&] {
    describe_linear(*checkpoint, load_model_config(folder.string()), "model.layers.0.mlp.gate", kExperts, kSize);
  });
}

TEST(ExpertReader, ExpertsOfOneLayerMustBeStoredAlike) {
  const std::string module = std::string(kPrefix) + ".5.down_proj";
  expect_refused("nvfp4_modelopt",
                 [&](Editable& m) {
                   m.tensors.erase(module + ".weight_scale");
                   m.tensors.erase(module + ".weight_scale_2");
                   m.tensors[module + ".weight"] = {"BF16", {kSize, kSize}, std::string(kSize * kSize * 2, '\0')};
                 },
                 ErrorCode::unsupported, {module, "alike"});
}

}  // namespace
