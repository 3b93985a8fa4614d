// A model's config.json in the spellings that are in use, checked value by value.
// Source: Hugging Face transformers 4 and 5 (config.json), ModelOpt (hf_quant_config.json), compressed-tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/tensor.h"

namespace fourfold {

class IgnoreRules;  // model/quantization_config.h

/// "quantization_config" or hf_quant_config.json, as far as it says what the bytes of a linear layer mean.
struct QuantizationConfig {
  std::string method;             ///< quant_method: "modelopt", "compressed-tensors", "gptq", "awq", "mxfp4", "fp8"
  std::string format;             ///< compressed-tensors: "nvfp4-pack-quantized", ...; modelopt: its quant_algo
  std::int64_t bits = 0;          ///< 0: not said
  std::int64_t group_size = -1;   ///< -1: not said; 0: the whole row
  bool symmetric = true;          ///< gptq "sym", compressed-tensors "symmetric", awq: not "zero_point"
  bool act_order = false;         ///< gptq "desc_act"
  std::string checkpoint_format;  ///< gptq: "gptq" (zero points less 1) or "gptq_v2"; awq: "version"
  std::vector<std::int64_t> weight_block_size;  ///< fp8: usually [128, 128]
  std::vector<std::string> ignore;              ///< modules left alone, as written: names, "re:" patterns, '*' globs
  std::string file;                             ///< where it was read from, for messages
  std::shared_ptr<const IgnoreRules> rules;     ///< `ignore`, prepared for matching by the parser
  /// Whether `module` ("model.layers.0.mlp.experts.3.up_proj") or one of its parents is named by `ignore`, or a plain
  /// entry stands anywhere in it between dots ("self_attn"). Thread-safe.
  bool ignores(std::string_view module) const;
};

/// Rotary position embedding. `type` "default" is plain; others are refused by check_runnable.
struct RopeConfig {
  std::string type = "default";
  double theta = 10000.0;
  double factor = 1.0;
  double partial_rotary_factor = 1.0;
};

/// The fields that a decoder needs. 0 or empty: absent from the file (check_runnable says what may be).
struct ModelConfig {
  std::string file;          ///< for messages
  std::string architecture;  ///< "Qwen3MoeForCausalLM"
  std::string model_type;
  std::string hidden_act;  ///< "silu"
  std::int64_t layers = 0, hidden = 0, intermediate = 0, vocabulary = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  ///< head_dim defaults to hidden / heads
  std::int64_t experts = 0, top_k = 0, expert_intermediate = 0;
  std::int64_t kv_lora_rank = 0, rope_head_dim = 0;  ///< latent attention: what is cached per token and layer
  std::int64_t draft_layers = 0;                     ///< num_nextn_predict_layers
  std::int64_t max_positions = 0;
  double rms_norm_eps = 0;
  RopeConfig rope;
  bool norm_topk_prob = false;
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  std::vector<std::int64_t> mlp_only_layers;
  std::int64_t decoder_sparse_step = 1;
  std::int64_t first_dense_layers = 0;         ///< first_k_dense_replace
  std::optional<std::int64_t> sliding_window;  ///< empty also when use_sliding_window is false
  std::optional<DType> dtype;                  ///< of the unquantised weights
  std::optional<QuantizationConfig> quantization;

  /// Whether `layer` has experts: not in mlp_only_layers, past first_dense_layers, (layer + 1) % decoder_sparse_step ==
  /// 0.
  bool is_moe_layer(std::int64_t layer) const noexcept;
};

/// Parses config.json's text; `quant_text` is hf_quant_config.json's text or empty (quantization_config in config.json
/// comes first). Any architecture is accepted; a value of the wrong JSON type, out of range, or a size whose products
/// leave 63 bits is bad_input naming file, key, value and expectation. Pure.
ModelConfig parse_model_config(std::string_view text, const std::string& file, std::string_view quant_text = {},
                               const std::string& quant_file = "hf_quant_config.json");
/// Reads config.json (and hf_quant_config.json when there) of a checkpoint folder. Throws bad_input.
ModelConfig load_model_config(const std::string& folder);
/// Whether the folder has a config.json.
bool has_model_config(const std::string& folder);
/// Throws unsupported unless the architecture is one of `known` (the message lists them), and rope type, activation and
/// sliding window are ones that run; bad_input unless every field that running needs is there and makes sense.
void check_runnable(const ModelConfig& config, std::span<const std::string> known);

}  // namespace fourfold
