// Qwen3-MoE: q/k norms per head, grouped-query attention, softmax routing, dense layers by mlp_only_layers and
// decoder_sparse_step. Source: Hugging Face transformers, models/qwen3_moe; "Qwen3 Technical Report", 2025.
#include <fmt/format.h>

#include "core/check.h"
#include "model/families/family.h"

namespace fourfold {

namespace {

/// The sizes that only this family's rules tie together; single values were checked when the config was read.
void check_sizes(const ModelConfig& config) {
  const auto need = [&](bool ok, const char* key, std::int64_t value, const char* rule) {
    check(ok, ErrorCode::bad_input, "{}: {} is {}: {}", config.file, key, value, rule);
  };
  need(config.hidden > 0 && config.hidden % 8 == 0, "hidden_size", config.hidden,
       "a positive multiple of 8 is expected");
  need(config.layers > 0, "num_hidden_layers", config.layers, "at least 1 is expected");
  need(config.vocabulary > 0 && config.vocabulary < (std::int64_t{1} << 31), "vocab_size", config.vocabulary,
       "1 .. 2^31 - 1 is expected");
  need(config.heads > 0, "num_attention_heads", config.heads, "at least 1 is expected");
  need(config.kv_heads > 0 && config.heads % config.kv_heads == 0, "num_key_value_heads", config.kv_heads,
       "a divisor of num_attention_heads is expected");
  need(config.head_dim > 0 && config.head_dim % 2 == 0, "head_dim", config.head_dim,
       "a positive even number is expected");
  need(config.max_positions > 0, "max_position_embeddings", config.max_positions, "at least 1 is expected");
  bool any_sparse = false, any_dense = false;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    (config.is_moe_layer(layer) ? any_sparse : any_dense) = true;
  if (any_sparse) {
    need(config.experts > 0, "num_experts", config.experts, "at least 1 is expected");
    need(config.top_k > 0 && config.top_k <= config.experts, "num_experts_per_tok", config.top_k,
         "1 .. num_experts is expected");
    need(config.expert_intermediate > 0 && config.expert_intermediate % 8 == 0, "moe_intermediate_size",
         config.expert_intermediate, "a positive multiple of 8 is expected");
  }
  if (any_dense)
    need(config.intermediate > 0 && config.intermediate % 2 == 0, "intermediate_size", config.intermediate,
         "a positive even number is expected");
}

LayerSpec describe_layer(const ModelConfig& config, std::int64_t index) {
  const std::string layer = fmt::format("model.layers.{}", index);
  const std::string attention = layer + ".self_attn", mlp = layer + ".mlp";
  LayerSpec spec;
  spec.input_norm = layer + ".input_layernorm.weight";
  spec.post_norm = layer + ".post_attention_layernorm.weight";
  spec.q = attention + ".q_proj";
  spec.k = attention + ".k_proj";
  spec.v = attention + ".v_proj";
  spec.o = attention + ".o_proj";
  spec.qkv_bias = spec.o_bias = config.attention_bias;
  spec.q_norm = attention + ".q_norm.weight";
  spec.k_norm = attention + ".k_norm.weight";
  spec.sparse = config.is_moe_layer(index);
  if (spec.sparse) {
    spec.router = mlp + ".gate";
    spec.experts = mlp + ".experts";
  } else {
    spec.gate = mlp + ".gate_proj";
    spec.up = mlp + ".up_proj";
    spec.down = mlp + ".down_proj";
  }
  return spec;
}

class Qwen3Moe final : public Family {
 public:
  std::string_view architecture() const noexcept override { return "Qwen3MoeForCausalLM"; }

  DecoderSpec describe(const ModelConfig& config) const override {
    check_sizes(config);
    check(config.hidden_act.empty() || config.hidden_act == "silu", ErrorCode::unsupported,
          "{}: hidden_act is \"{}\", this family runs with \"silu\"", config.file, config.hidden_act);
    check(config.rope.partial_rotary_factor == 1.0, ErrorCode::unsupported,
          "{}: partial_rotary_factor is {}, this family rotates whole heads (1)", config.file,
          config.rope.partial_rotary_factor);
    DecoderSpec spec;
    spec.hidden = config.hidden;
    spec.vocabulary = config.vocabulary;
    spec.heads = config.heads;
    spec.kv_heads = config.kv_heads;
    spec.head_dim = spec.rotary_dim = config.head_dim;
    spec.experts = config.experts;
    spec.top_k = config.top_k;
    spec.expert_intermediate = config.expert_intermediate;
    spec.dense_intermediate = config.intermediate;
    spec.max_positions = config.max_positions;
    spec.rope_theta = config.rope.theta;
    spec.eps = static_cast<float>(config.rms_norm_eps);
    spec.renormalise_top_k = config.norm_topk_prob;
    spec.activation.kind = ActivationKind::silu;
    spec.embedding = "model.embed_tokens.weight";
    spec.final_norm = "model.norm.weight";
    if (!config.tie_word_embeddings) spec.head = "lm_head";
    for (std::int64_t index = 0; index < config.layers; ++index) spec.layers.push_back(describe_layer(config, index));
    return spec;
  }
};

}  // namespace

const Family& qwen3_moe_family() {
  static const Qwen3Moe kFamily;
  return kFamily;
}

}  // namespace fourfold
