// config.json, value by value: both spellings of each key, checked types, bounded sizes.
#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>

#include "core/check.h"
#include "core/file.h"
#include "model/json_text.h"
#include "model/quantization_config.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

// Far above every model, low enough that three of them multiply without leaving 63 bits.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;
constexpr std::int64_t kMaxLayers = 100'000;

/// Typed access to an object's keys, with messages that name file, key, value and expectation.
class Reader {
 public:
  Reader(const Json& object, std::string file) : object_(object), file_(std::move(file)) {}

  /// The first of `keys` that is there and not null. Throws bad_input when another spelling says something else.
  const Json* find(std::initializer_list<const char*> keys, std::string& found) const {
    const Json* value = nullptr;
    for (const char* key : keys) {
      const auto at = object_.find(key);
      if (at == object_.end() || at->is_null()) continue;
      check(value == nullptr || *value == *at, ErrorCode::bad_input, "{}: '{}' is {}, but '{}' is {}; keep one", file_,
            found, value == nullptr ? "" : shown(*value), key, shown(*at));
      if (value != nullptr) continue;
      found = key;
      value = &*at;
    }
    return value;
  }
  std::int64_t integer(std::initializer_list<const char*> keys, std::int64_t fallback, std::int64_t lowest,
                       std::int64_t highest) const {
    std::string key;
    const Json* value = find(keys, key);
    if (value == nullptr) return fallback;
    const bool fits =
        value->is_number_integer() && (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX);
    const std::int64_t number = fits ? value->get<std::int64_t>() : 0;
    check(fits && number >= lowest && number <= highest, ErrorCode::bad_input,
          "{}: '{}' is {}; expected is an integer from {} to {}", file_, key, shown(*value), lowest, highest);
    return number;
  }
  double number(std::initializer_list<const char*> keys, double fallback) const {
    std::string key;
    const Json* value = find(keys, key);
    if (value == nullptr) return fallback;
    check(value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() > 0, ErrorCode::bad_input,
          "{}: '{}' is {}; expected is a positive number", file_, key, shown(*value));
    return value->get<double>();
  }
  bool boolean(std::initializer_list<const char*> keys, bool fallback) const {
    std::string key;
    const Json* value = find(keys, key);
    if (value == nullptr) return fallback;
    check(value->is_boolean(), ErrorCode::bad_input, "{}: '{}' is {}; expected is true or false", file_, key,
          shown(*value));
    return value->get<bool>();
  }
  std::string text(std::initializer_list<const char*> keys) const {
    std::string key;
    const Json* value = find(keys, key);
    if (value == nullptr) return {};
    check(value->is_string(), ErrorCode::bad_input, "{}: '{}' is {}; expected is a string", file_, key, shown(*value));
    return value->get<std::string>();
  }

 private:
  const Json& object_;
  std::string file_;
};

std::string architecture_of(const Json& root, const std::string& file) {
  const auto at = root.find("architectures");
  if (at == root.end() || at->is_null()) return {};
  check(at->is_array() && (at->empty() || (*at)[0].is_string()), ErrorCode::bad_input,
        "{}: 'architectures' is {}; expected is a list of strings", file, shown(*at));
  return at->empty() ? std::string() : (*at)[0].get<std::string>();
}

std::optional<DType> dtype_of(const Reader& reader, const std::string& file) {
  std::string name = reader.text({"dtype", "torch_dtype"});
  if (name.empty()) return std::nullopt;
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16" || name == "half") return DType::f16;
  if (name == "float32" || name == "float") return DType::f32;
  fail(ErrorCode::bad_input, "{}: 'dtype' is \"{}\"; expected is bfloat16, float16 or float32", file, name);
}

/// transformers 5 keeps everything in rope_parameters; before that theta stood alone and rope_scaling was null or an
/// object with "type" or "rope_type".
RopeConfig rope_of(const Json& body, const Reader& reader, const std::string& file) {
  RopeConfig rope;
  rope.theta = reader.number({"rope_theta"}, rope.theta);
  rope.partial_rotary_factor = reader.number({"partial_rotary_factor"}, rope.partial_rotary_factor);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto at = body.find(key);
    if (at == body.end() || at->is_null()) continue;
    check(at->is_object(), ErrorCode::bad_input, "{}: '{}' is {}; expected is an object or null", file, key,
          shown(*at));
    const Reader scaling(*at, file + ": " + key);
    const std::string type = scaling.text({"rope_type", "type"});
    check(!type.empty() || !at->contains("factor"), ErrorCode::bad_input,
          "{}: '{}' has a factor but no rope_type; add the type or remove the factor", file, key);
    // Both may be there, written by different versions: one that scales must not be lost behind one that does not.
    if (!type.empty() && type != "default") {
      check(rope.type == "default" || rope.type == type, ErrorCode::bad_input,
            "{}: rope_scaling says '{}', but rope_parameters says '{}'; keep one", file, rope.type, type);
      rope.type = type;
    }
    rope.theta = scaling.number({"rope_theta"}, rope.theta);
    rope.factor = scaling.number({"factor"}, rope.factor);
    rope.partial_rotary_factor = scaling.number({"partial_rotary_factor"}, rope.partial_rotary_factor);
  }
  return rope;
}

std::vector<std::int64_t> layer_list(const Json& body, const char* key, const std::string& file) {
  const auto at = body.find(key);
  if (at == body.end() || at->is_null()) return {};
  bool ok = at->is_array();
  std::vector<std::int64_t> layers;
  if (ok)
    for (const Json& entry : *at) {
      ok = ok && entry.is_number_integer() && entry >= 0 && entry < kMaxLayers;
      if (ok) layers.push_back(entry.get<std::int64_t>());
    }
  check(ok, ErrorCode::bad_input, "{}: '{}' is {}; expected is a list of layer numbers", file, key, shown(*at));
  return layers;
}

/// Every product that a loader makes from the sizes must be a byte count below 2^63.
void check_products(const ModelConfig& config) {
  const auto product = [&](const char* what, std::initializer_list<std::int64_t> factors) {
    std::int64_t size = 8;  // bytes of the widest element
    const std::string text = config.file + ": " + what;
    for (std::int64_t factor : factors)
      size = checked_mul(size, std::max<std::int64_t>(factor, 1), text.c_str(), ErrorCode::bad_input);
  };
  product("vocab_size x hidden_size", {config.vocabulary, config.hidden});
  product("layers x experts x 3 x moe_intermediate_size x hidden_size",
          {config.layers, config.experts, 3, config.expert_intermediate, config.hidden});
  product("layers x 3 x intermediate_size x hidden_size", {config.layers, 3, config.intermediate, config.hidden});
  product("layers x num_attention_heads x head_dim x hidden_size",
          {config.layers, config.heads, config.head_dim, config.hidden});
  product("layers x max_position_embeddings x num_key_value_heads x head_dim",
          {config.layers, config.max_positions, 2, config.kv_heads, config.head_dim});
}

/// config.json and hf_quant_config.json may both describe the quantisation, in the same words.
void check_same_quantization(const QuantizationConfig& a, const QuantizationConfig& b) {
  const auto same = [&](const char* key, const auto& left, const auto& right) {
    check(left == right, ErrorCode::bad_input, "{} says {} {}, but {} says {}; remove the wrong one", a.file, key, left,
          b.file, right);
  };
  same("method", a.method, b.method);
  if (!a.format.empty() && !b.format.empty()) same("algorithm", a.format, b.format);
  if (a.group_size >= 0 && b.group_size >= 0) same("group size", a.group_size, b.group_size);
}

}  // namespace

bool ModelConfig::is_moe_layer(std::int64_t layer) const noexcept {
  if (experts <= 0 || layer < first_dense_layers) return false;
  if (std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) != mlp_only_layers.end()) return false;
  return (layer + 1) % decoder_sparse_step == 0;
}

ModelConfig parse_model_config(std::string_view text, const std::string& file, std::string_view quant_text,
                               const std::string& quant_file) {
  const Json root = parse_json(text, file);
  check(root.is_object(), ErrorCode::bad_input, "{}: {} instead of a JSON object", file, shown(root));
  // Models that also see or hear keep the language model's sizes one level down.
  const auto inner = root.find("text_config");
  const Json& body = inner != root.end() && inner->is_object() && !root.contains("hidden_size") ? *inner : root;
  const Reader reader(body, file);
  const auto size = [&](std::initializer_list<const char*> keys) { return reader.integer(keys, 0, 1, kMaxExtent); };

  ModelConfig config;
  config.file = file;
  config.architecture = architecture_of(root, file);
  config.model_type = reader.text({"model_type"});
  config.hidden_act = reader.text({"hidden_act", "hidden_activation"});
  config.layers = reader.integer({"num_hidden_layers"}, 0, 1, kMaxLayers);
  config.hidden = size({"hidden_size"});
  config.intermediate = reader.integer({"intermediate_size"}, 0, 0, kMaxExtent);
  config.vocabulary = size({"vocab_size"});
  config.heads = size({"num_attention_heads"});
  config.kv_heads = size({"num_key_value_heads"});
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  config.head_dim = size({"head_dim"});
  if (config.head_dim == 0 && config.heads > 0) config.head_dim = config.hidden / config.heads;
  config.experts = reader.integer({"num_experts", "num_local_experts", "n_routed_experts"}, 0, 0, kMaxExtent);
  config.top_k = reader.integer({"num_experts_per_tok", "num_experts_per_token", "moe_top_k"}, 0, 0, kMaxExtent);
  config.expert_intermediate = size({"moe_intermediate_size"});
  // Mixtral, OLMoE and gpt-oss have no dense layers, and call the experts' size intermediate_size.
  if (config.expert_intermediate == 0 && config.experts > 0) config.expert_intermediate = config.intermediate;
  config.kv_lora_rank = reader.integer({"kv_lora_rank"}, 0, 0, kMaxExtent);
  config.rope_head_dim = reader.integer({"qk_rope_head_dim"}, 0, 0, kMaxExtent);
  config.draft_layers = reader.integer({"num_nextn_predict_layers"}, 0, 0, kMaxLayers);
  config.max_positions = size({"max_position_embeddings"});
  config.rms_norm_eps = reader.number({"rms_norm_eps"}, 0);
  config.rope = rope_of(body, reader, file);
  config.norm_topk_prob = reader.boolean({"norm_topk_prob"}, false);
  config.attention_bias = reader.boolean({"attention_bias"}, false);
  config.tie_word_embeddings =
      reader.boolean({"tie_word_embeddings"}, root.value("tie_word_embeddings", Json(false)) == true);
  config.mlp_only_layers = layer_list(body, "mlp_only_layers", file);
  config.decoder_sparse_step = reader.integer({"decoder_sparse_step"}, 1, 1, kMaxLayers);
  config.first_dense_layers = reader.integer({"first_k_dense_replace"}, 0, 0, kMaxLayers);
  const std::int64_t window = reader.integer({"sliding_window"}, 0, 0, kMaxExtent);
  if (window > 0 && reader.boolean({"use_sliding_window"}, true)) config.sliding_window = window;
  config.dtype = dtype_of(reader, file);

  Json quant_root;
  if (!quant_text.empty()) quant_root = parse_json(quant_text, quant_file);
  const Json& holder = root.contains("quantization_config") ? root : body;
  const auto quant = holder.find("quantization_config");
  if (quant != holder.end() && !quant->is_null())
    config.quantization = parse_quantization_config(*quant, file + ": quantization_config");
  if (config.quantization && !quant_text.empty())
    check_same_quantization(*config.quantization, parse_hf_quant_config(quant_root, quant_file));
  else if (!quant_text.empty())
    config.quantization = parse_hf_quant_config(quant_root, quant_file);
  check_products(config);
  return config;
}

bool has_model_config(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(folder) / "config.json", ignored);
}

ModelConfig load_model_config(const std::string& folder) {
  const std::filesystem::path base(folder);
  const std::string file = (base / "config.json").string(), quant_file = (base / "hf_quant_config.json").string();
  std::error_code ignored;
  const std::string text = read_text_file(file, kMaxJsonBytes);
  std::string quant;
  if (std::filesystem::exists(quant_file, ignored)) {
    quant = read_text_file(quant_file, kMaxJsonBytes);
    check(!quant.empty(), ErrorCode::bad_input, "{}: the file is empty", quant_file);
  }
  return parse_model_config(text, file, quant, quant_file);
}

void check_runnable(const ModelConfig& config, std::span<const std::string> known) {
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  check(std::find(known.begin(), known.end(), config.architecture) != known.end(), ErrorCode::unsupported,
        "{}: architecture '{}' is not supported; known are: {}", config.file, config.architecture, list);
  const auto needed = [&](const char* key, std::int64_t value) {
    check(value > 0, ErrorCode::bad_input, "{}: '{}' is absent or 0; expected is a positive integer", config.file, key);
  };
  needed("num_hidden_layers", config.layers);
  needed("hidden_size", config.hidden);
  needed("vocab_size", config.vocabulary);
  needed("num_attention_heads", config.heads);
  needed("head_dim", config.head_dim);
  needed("max_position_embeddings", config.max_positions);
  needed("num_experts", config.experts);
  needed("num_experts_per_tok", config.top_k);
  needed("moe_intermediate_size", config.expert_intermediate);
  check(config.rms_norm_eps > 0 && config.rms_norm_eps <= 1, ErrorCode::bad_input,
        "{}: 'rms_norm_eps' is {} (0: absent); expected is a number above 0, at most 1", config.file,
        config.rms_norm_eps);
  check(config.rope.theta >= 1 && config.rope.theta <= 1e12, ErrorCode::bad_input,
        "{}: 'rope_theta' is {}; expected is a number from 1 to 1e12", config.file, config.rope.theta);
  check(config.top_k <= config.experts, ErrorCode::bad_input,
        "{}: 'num_experts_per_tok' is {}, more than the {} experts", config.file, config.top_k, config.experts);
  check(config.heads % config.kv_heads == 0, ErrorCode::bad_input,
        "{}: 'num_attention_heads' {} is not a multiple of 'num_key_value_heads' {}", config.file, config.heads,
        config.kv_heads);
  check(config.head_dim % 2 == 0, ErrorCode::bad_input, "{}: 'head_dim' is {}; expected is an even number", config.file,
        config.head_dim);
  check(config.rope.type == "default", ErrorCode::unsupported,
        "{}: rope type '{}' is not supported; supported is 'default'", config.file, config.rope.type);
  check(config.rope.partial_rotary_factor == 1.0, ErrorCode::unsupported,
        "{}: 'partial_rotary_factor' is {}; supported is 1", config.file, config.rope.partial_rotary_factor);
  check(config.hidden_act == "silu", ErrorCode::unsupported, "{}: 'hidden_act' is '{}'; supported is 'silu'",
        config.file, config.hidden_act);
  check(
      !config.sliding_window || *config.sliding_window >= config.max_positions, ErrorCode::unsupported,
      "{}: 'sliding_window' is {}; attention over a window shorter than 'max_position_embeddings' {} is not supported",
      config.file, config.sliding_window.value_or(0), config.max_positions);
}

}  // namespace fourfold
