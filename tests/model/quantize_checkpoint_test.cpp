// Quantising a checkpoint: what is written, that it reads back to the bit, and that nothing stays after a failure.
#include "model/quantize_checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "checkpoint_fixture.h"
#include "formats/quantize.h"
#include "model/expert_reader.h"
#include "model/quantized_layout.h"

namespace {

using namespace fixture;
using namespace fourfold;

struct Choice {
  const char* name;
  QuantizeOptions options;
};
std::vector<Choice> choices() {
  using L = CheckpointLayout;
  return {{"nvfp4", {FormatSpec::nvfp4(), false, {}}},
          {"nvfp4 four over six", {FormatSpec::nvfp4(), true, {}}},
          {"nvfp4 compressed-tensors", {FormatSpec::nvfp4(), false, L::compressed_tensors}},
          {"mxfp4", {FormatSpec::mxfp4(), false, {}}},
          {"int4 g32", {FormatSpec::int4(32), false, {}}},
          {"int4 g128", {FormatSpec::int4(128), false, {}}},
          {"int4 row", {FormatSpec::int4(0), false, {}}},
          {"int4 g32 asymmetric", {FormatSpec::int4(32, true), false, {}}}};
}

std::string prefix_of(std::int64_t layer) { return "model.layers." + std::to_string(layer) + ".mlp.experts"; }

void expect_same_matrix(const MatrixSource& read, const QuantizedMatrix& made, CheckpointLayout layout) {
  const std::int64_t groups = groups_per_row(made.spec, made.k);
  const std::int64_t width = made.spec.format == WeightFormat::int4 ? 2 : 1;
  ASSERT_EQ(made.codes.size(), static_cast<std::size_t>(made.rows * made.k / 2));
  for (std::int64_t row = 0; row < made.rows; ++row) {
    ASSERT_EQ(std::memcmp(read.codes + row * read.codes_row_bytes, made.codes.data() + row * made.k / 2,
                          static_cast<std::size_t>(made.k / 2)),
              0);
    ASSERT_EQ(std::memcmp(static_cast<const std::byte*>(read.scales) + row * read.scales_row_bytes,
                          made.scales.data() + row * groups * width, static_cast<std::size_t>(groups * width)),
              0);
    if (made.spec.zero_points) {
      ASSERT_EQ(std::memcmp(read.zeros + row * read.zeros_row_bytes, made.zeros.data() + row * groups,
                            static_cast<std::size_t>(groups)),
                0);
    }
  }
  ASSERT_EQ(read.zeros != nullptr, made.spec.zero_points);
  ASSERT_EQ(read.global_scale, read_back_global(made.global_scale, layout));
  ASSERT_NEAR(read.global_scale / made.global_scale, 1.0, 0x1p-23);
}

TEST(QuantizeCheckpoint, TheDemoModelReadsBackToTheBitInEveryFormat) {
  const auto source = Checkpoint::open(demo_folder());
  const ModelConfig config = load_model_config(demo_folder());
  for (const Choice& choice : choices()) {
    SCOPED_TRACE(choice.name);
    const TemporaryFolder folder;
    const std::string out = folder / "out";
    const QuantizeReport report = quantize_checkpoint(demo_folder(), out, choice.options);
    EXPECT_EQ(report.matrices, 6 * 24 * 3);
    EXPECT_LT(report.bytes_after, report.bytes_before);
    EXPECT_GT(report.relative_rms_error, 0.01);
    EXPECT_LT(report.relative_rms_error, 0.2);
    const auto written = Checkpoint::open(out);
    const ModelConfig written_config = load_model_config(out);
    const bool nvfp4 = choice.options.format.format == WeightFormat::nvfp4;
    const CheckpointLayout layout =
        choice.options.layout.value_or(nvfp4 ? CheckpointLayout::modelopt : CheckpointLayout::compressed_tensors);
    std::int64_t compared = 0;
    std::vector<float> weights[3];
    for (auto& w : weights) w.resize(256 * 96);
    for (std::int64_t layer : {0, 5}) {
      const ExpertLayerInfo info = describe_experts(*written, written_config, prefix_of(layer));
      EXPECT_EQ(info.format, choice.options.format);
      const auto experts = expert_source(*written, written_config, prefix_of(layer));
      for (std::int64_t e = 0; e < 24; ++e) {
        read_expert_f32(*source, config, prefix_of(layer), e, {weights[0], weights[1], weights[2]});
        const ExpertMatrices m = experts->expert(e);
        const MatrixSource* read[3] = {&m.gate, &m.up, &m.down};
        for (int p = 0; p < 3; ++p) {
          const std::int64_t rows = p == 2 ? 256 : 96, k = p == 2 ? 96 : 256;
          expect_same_matrix(*read[p],
                             quantize_matrix(weights[p], rows, k, choice.options.format, choice.options.four_over_six),
                             layout);
          ++compared;
        }
      }
    }
    EXPECT_EQ(compared, 2 * 24 * 3);
  }
}

TEST(QuantizeCheckpoint, EverythingElseIsCopiedBitForBit) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  quantize_checkpoint(demo_folder(), out, {});
  const auto source = Checkpoint::open(demo_folder()), written = Checkpoint::open(out);
  std::size_t compared = 0;
  for (const TensorInfo& tensor : source->tensors()) {
    if (tensor.name.find(".experts.") != std::string::npos) continue;
    const TensorBytes a = source->read(tensor.name), b = written->read(tensor.name);
    ASSERT_EQ(a.dtype(), b.dtype());
    ASSERT_EQ(a.size(), b.size());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, 6u * 9 + 2);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    EXPECT_EQ(read_bytes(demo_folder() + "/" + name), read_bytes(out + "/" + name));
  EXPECT_FALSE(fs::exists(out + "/model.safetensors.index.json"));
}

TEST(QuantizeCheckpoint, ConfigsSayWhatWasDone) {
  const TemporaryFolder folder;
  quantize_checkpoint(data_folder("tiny/qwen3_moe"), folder / "modelopt", {});
  const auto config = nlohmann::json::parse(read_bytes(folder / "modelopt/config.json"));
  EXPECT_EQ(config["quantization_config"]["quant_method"], "modelopt");
  EXPECT_EQ(config["hidden_size"], 64);
  const auto own = nlohmann::json::parse(read_bytes(folder / "modelopt/hf_quant_config.json"));
  EXPECT_EQ(own["quantization"]["quant_algo"], "NVFP4");
  const auto excluded = own["quantization"]["exclude_modules"].get<std::vector<std::string>>();
  EXPECT_EQ(std::count(excluded.begin(), excluded.end(), "model.layers.1.mlp.gate"), 1);
  QuantizeOptions int4;
  int4.format = FormatSpec::int4(32);
  quantize_checkpoint(data_folder("tiny/qwen3_moe"), folder / "int4", int4);
  const auto scheme = nlohmann::json::parse(read_bytes(folder / "int4/config.json"))["quantization_config"];
  EXPECT_EQ(scheme["format"], "pack-quantized");
  EXPECT_EQ(scheme["config_groups"]["group_0"]["weights"]["group_size"], 32);
  const auto written = Checkpoint::open(folder / "int4");  // 48 columns in groups of 32
  EXPECT_EQ(written->files()[0]->header().metadata.count("fourfold.short_last_group"), 1u);
  EXPECT_FALSE(fs::exists(folder / "int4/hf_quant_config.json"));
}

TEST(QuantizeCheckpoint, ManySmallShardsHoldTheSameTensors) {
  const TemporaryFolder folder;
  QuantizeOptions options;
  options.format = FormatSpec::int4(32, true);
  std::vector<QuantizeProgress> steps;
  quantize_checkpoint_in_shards(
      data_folder("tiny/qwen3_moe"), folder / "many", options,
      [&](const QuantizeProgress& step) { steps.push_back(step); }, 1 << 16);
  quantize_checkpoint(data_folder("tiny/qwen3_moe"), folder / "one", options);
  const auto many = Checkpoint::open(folder / "many"), one = Checkpoint::open(folder / "one");
  EXPECT_GT(many->files().size(), 4u);
  EXPECT_EQ(one->files().size(), 1u);
  ASSERT_EQ(many->tensors().size(), one->tensors().size());
  for (const TensorInfo& tensor : one->tensors()) {
    const TensorBytes a = one->read(tensor.name), b = many->read(tensor.name);
    ASSERT_EQ(a.size(), b.size());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << tensor.name;
  }
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back().bytes_done, steps.back().bytes_total);
}

TEST(QuantizeCheckpoint, EveryTensorStartsAtAMultipleOfItsElement) {
  std::size_t tensors = 0;
  for (const Choice& choice : choices()) {
    const TemporaryFolder folder;
    quantize_checkpoint(data_folder("tiny/qwen3_moe"), folder / "out", choice.options);
    const auto written = Checkpoint::open(folder / "out");
    for (const auto& file : written->files())
      for (const SafetensorsEntry& entry : file->header().entries) {
        const auto width = static_cast<std::uint64_t>(std::max(1, dtype_bits(entry.dtype) / 8));
        EXPECT_EQ((file->header().data_start + entry.begin) % width, 0u) << choice.name << " " << entry.name;
        ++tensors;
      }
  }
  EXPECT_GT(tensors, 400u);
}

TEST(QuantizeCheckpoint, Fp8SourcesAreQuantisedAndTheRestWidened) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny/qwen3_moe"));
  model.config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  std::size_t made = 0;
  for (auto& [name, tensor] : RawTensors(model.tensors)) {
    const bool expert = name.find(".experts.") != std::string::npos;
    if (!expert && name.find("q_proj") == std::string::npos) continue;
    RawTensor& weight = model.tensors[name];
    weight.dtype = "F8_E4M3";
    weight.bytes.assign(weight.bytes.size() / 2, '\x38');  // 1.0
    const std::string module = name.substr(0, name.size() - 7);
    model.tensors[module + ".weight_scale_inv"] = {
        "F32", {(weight.shape[0] + 127) / 128, (weight.shape[1] + 127) / 128}, bytes_of({0.25f})};
    ++made;
  }
  EXPECT_EQ(made, 2u * 8 * 3 + 2);
  model.save(folder / "fp8");
  const QuantizeReport report = quantize_checkpoint(folder / "fp8", folder / "out", {});
  EXPECT_EQ(report.matrices, 2 * 8 * 3);
  EXPECT_LT(report.max_abs_error, 1e-6);
  const auto written = Checkpoint::open(folder / "out");
  EXPECT_FALSE(written->contains("model.layers.0.self_attn.q_proj.weight_scale_inv"));
  const TensorInfo& q = written->require("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(q.dtype, DType::bf16);
  std::vector<float> values(static_cast<std::size_t>(q.shape[0] * q.shape[1]));
  written->read_f32(q.name, values);
  EXPECT_EQ(std::count(values.begin(), values.end(), 0.25f), static_cast<std::ptrdiff_t>(values.size()));
}

TEST(QuantizeCheckpoint, WhatCannotBeDoneIsRefusedAndLeavesNothing) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "full");
  write_bytes(folder / "full/file", "x");
  expect_error(ErrorCode::usage, {"full"}, [&] { quantize_checkpoint(demo_folder(), folder / "full", {}); });
  for (const char* name : {"nvfp4_modelopt", "int4_gptq", "mxfp4_gpt_oss"})
    expect_error(ErrorCode::unsupported, {"already quantised"},
                 [&] { quantize_checkpoint(data_folder("tiny_quant/") + name, folder / "out", {}); });
  expect_error(ErrorCode::unsupported, {"no expert matrix"},
               [&] { quantize_checkpoint(data_folder("tiny/gpt_oss"), folder / "out", {}); });
  QuantizeOptions options;
  options.format = FormatSpec::int4(32);
  options.layout = CheckpointLayout::modelopt;
  expect_error(ErrorCode::usage, {"modelopt"}, [&] { quantize_checkpoint(demo_folder(), folder / "out", options); });
  options = {};
  options.format = FormatSpec::int4(48);
  expect_error(ErrorCode::unsupported, {"48"}, [&] { quantize_checkpoint(demo_folder(), folder / "out", options); });
  options = {};
  options.format = FormatSpec::mxfp4();
  options.four_over_six = true;
  expect_error(ErrorCode::usage, {"four over six"},
               [&] { quantize_checkpoint(demo_folder(), folder / "out", options); });
  expect_error(ErrorCode::bad_input, {"nowhere"}, [&] { quantize_checkpoint(folder / "nowhere", folder / "out", {}); });
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.string()), fs::directory_iterator()), 1);
}

TEST(QuantizeCheckpoint, AWeightThatIsNotFiniteIsNamedAndNothingStays) {
  const TemporaryFolder folder;
  Editable model(data_folder("tiny/qwen3_moe"));
  const std::string name = "model.layers.1.mlp.experts.4.up_proj";
  model.tensors[name + ".weight"].bytes.replace(10, 2, "\xc0\x7f");
  model.save(folder / "nan");
  expect_error(ErrorCode::bad_input, {name}, [&] { quantize_checkpoint(folder / "nan", folder / "out", {}); });
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.string()), fs::directory_iterator()), 1);
}

TEST(QuantizeCheckpoint, AWriteThatFailsHalfwayLeavesNothing) {
  const TemporaryFolder folder;
  // A file size limit stands in for a full disk: write() fails in the middle of the first shard.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorCode::bad_input, {"model.safetensors"},
               [&] { quantize_checkpoint(demo_folder(), folder / "out", {}); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(fs::is_empty(folder.string()));
}

TEST(QuantizedLayout, ReciprocalGlobalsReadBackWithinOneUnit) {
  int exact = 0, all = 0;
  for (float global = 0x1p-20f; global < 0x1p-19f; global = std::nextafter(global, 1.0f)) {
    if (++all % 997 != 0) continue;
    const float back = 1.0f / reciprocal_global(global);
    EXPECT_LE(std::abs(back - global), 0x1p-43f) << global;  // one unit of fp32 in [2^-20, 2^-19)
    exact += back == global;
  }
  EXPECT_GT(exact, all / 997 / 2);
  EXPECT_TRUE(std::isfinite(reciprocal_global(0x1p-126f)));
}

}  // namespace
