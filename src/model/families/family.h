// What a model family says about its checkpoints: tensor names, which norms there are, options. A family is one file
// here and one line in family.cpp; nothing else in the library knows a tensor's name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/plan.h"
#include "model/hf_config.h"

namespace fourfold {

/// One decoder layer. Norms are tensor names; projections are module names, to which ".weight" and ".bias" belong.
struct LayerSpec {
  std::string input_norm, post_norm;  // fp weights [hidden]
  std::string q, k, v, o;  // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] twice, and o's transpose
  bool qkv_bias = false, o_bias = false;
  std::string q_norm, k_norm;  // [head_dim], or empty: none
  bool sparse = false;         // experts, else a dense gated layer
  std::string router;          // sparse: module [experts, hidden]
  std::string experts;         // sparse: prefix for expert_reader
  std::string gate, up, down;  // dense: modules of `dense_intermediate`
};

/// A whole decoder: rms-normed, rotary, grouped-query attention, gated feed-forward layers.
struct DecoderSpec {
  std::int64_t hidden = 0, vocabulary = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t experts = 0, top_k = 0, expert_intermediate = 0, dense_intermediate = 0;
  std::int64_t max_positions = 0;
  std::int64_t rotary_dim = 0;  // even, <= head_dim
  double rope_theta = 0;
  float eps = 0;
  bool renormalise_top_k = false;  // softmax over all experts, then the chosen weights divided by their sum
  Activation activation;
  std::string embedding;   // tensor [vocabulary, hidden]
  std::string final_norm;  // tensor [hidden]
  std::string head;        // module [vocabulary, hidden]; empty: the embedding
  std::vector<LayerSpec> layers;
};

class Family {
 public:
  virtual ~Family() = default;
  /// As config.json's "architectures" spells it.
  virtual std::string_view architecture() const noexcept = 0;
  /// Throws bad_input or unsupported naming the config's key. Pure.
  virtual DecoderSpec describe(const ModelConfig& config) const = 0;
};

/// The family of an architecture. Throws bad_input listing the known ones.
const Family& family_of(const ModelConfig& config);

const Family& qwen3_moe_family();

}  // namespace fourfold
