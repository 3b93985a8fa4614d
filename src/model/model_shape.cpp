// fourfold::read_model_shape: what planning needs of a model, from configs and headers.
#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "fourfold/model.h"
#include "model/hf_config.h"
#include "model/json_text.h"

namespace fourfold {
namespace {

constexpr std::int64_t kKeysAndValues = 2;

std::string group_word(std::int64_t group_size) {
  return group_size == 0 ? " grow" : group_size > 0 ? fmt::format(" g{}", group_size) : std::string();
}

/// The experts' format in the words of a problem; empty when it is none that is priced.
std::string format_words(const std::optional<QuantizationConfig>& quantization) {
  if (!quantization) return {};
  const QuantizationConfig& config = *quantization;
  const auto mentions = [&](std::string_view part) {
    return config.format.find(part) != std::string::npos || config.method.find(part) != std::string::npos;
  };
  if (mentions("nvfp4") || mentions("NVFP4")) return "nvfp4";
  if (mentions("mxfp4") || mentions("MXFP4")) return "mxfp4";
  if (config.method == "exl3") return config.bits > 0 ? fmt::format("exl3 b{}", config.bits) : "exl3";
  const bool packed = config.method == "gptq" || config.method == "awq" || config.format == "pack-quantized";
  if (packed && (config.bits == 4 || config.bits == 0))
    return fmt::format("int4{}{}", group_word(config.group_size), config.symmetric ? "" : " zp");
  return {};
}

struct ActivationWords {
  std::string words;
  bool biases = false;
};

ActivationWords activation_of(const ModelConfig& config) {
  if (config.architecture == "GptOssForCausalLM") return {"swiglu_oai", true};
  if (config.hidden_act.empty() || config.hidden_act == "silu" || config.hidden_act == "swish") return {"silu"};
  if (config.hidden_act == "gelu_pytorch_tanh" || config.hidden_act == "gelu_new") return {"gelu_tanh"};
  if (config.hidden_act == "relu2") return {"relu2"};
  fail(ErrorCode::unsupported,
       "{}: 'hidden_act' is \"{}\"; known are silu, gelu_pytorch_tanh and relu2: describe the layer as a problem "
       "instead",
       config.file, config.hidden_act);
}

bool has_weights(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".safetensors") return true;
  return false;
}

}  // namespace

std::int64_t ModelShape::kv_values(std::int64_t tp) const noexcept {
  if (kv_latent > 0) return kv_latent;
  return kKeysAndValues * std::max<std::int64_t>(1, ceil_div(kv_heads, std::max<std::int64_t>(1, tp))) * head_dim;
}

ModelShape read_model_shape(const std::string& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const ModelConfig config =
      folder ? load_model_config(path) : parse_model_config(read_text_file(path, kMaxJsonBytes), path);
  const auto needed = [&](const char* key, std::int64_t value) {
    check(value > 0, ErrorCode::bad_input, "{}: '{}' is absent or 0; a model with experts is needed here", config.file,
          key);
  };
  needed("num_hidden_layers", config.layers);
  needed("hidden_size", config.hidden);
  needed("num_experts", config.experts);
  needed("num_experts_per_tok", config.top_k);
  needed("moe_intermediate_size", config.expert_intermediate);

  ModelShape shape;
  shape.file = config.file;
  shape.architecture = config.architecture;
  shape.layers = config.layers;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) shape.moe_layers += config.is_moe_layer(layer);
  check(shape.moe_layers > 0, ErrorCode::bad_input, "{}: none of the {} layers has experts", config.file,
        config.layers);
  shape.draft_layers = config.draft_layers;
  shape.hidden = config.hidden;
  shape.experts = config.experts;
  shape.top_k = config.top_k;
  shape.expert_intermediate = config.expert_intermediate;
  const ActivationWords activation = activation_of(config);
  shape.activation = activation.words;
  shape.biases = activation.biases;
  shape.format = format_words(config.quantization);
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  if (config.kv_lora_rank > 0)
    shape.kv_latent = checked_add(config.kv_lora_rank, config.rope_head_dim, "values of the latent cache");
  shape.max_positions = config.max_positions;
  if (folder && has_weights(path)) {
    const CheckpointInfo info = inspect_checkpoint(path);
    shape.file_bytes = info.total_bytes;
    shape.file_expert_bytes = info.expert_bytes;
  }
  return shape;
}

}  // namespace fourfold
