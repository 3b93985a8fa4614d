// From a checkpoint folder to a decoder: checks every tensor against the config first, then packs layer by layer.
#include "model/model_load.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "fourfold/moe.h"
#include "model/message_text.h"

namespace fourfold {

namespace {

std::string format_of(const ExpertLayerInfo& info) {
  if (info.quantised) {
    std::string text(weight_format_name(info.format.format));
    if (info.format.format == WeightFormat::int4) {
      text += info.format.group_size == 0 ? " row" : fmt::format(" g{}", info.format.group_size);
      if (info.format.zero_points) text += " zp";
    }
    return text;
  }
  std::string text(dtype_name(info.source_dtype));
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

ModelConfig runnable_config(const std::string& folder) {
  ModelConfig config = load_model_config(folder);
  check_runnable(config, known_architectures());
  return config;
}

using Part = DenseReader::Part;

std::array<Part, 3> qkv_parts(const DecoderSpec& spec, const LayerSpec& layer) {
  return {Part{layer.q, spec.heads * spec.head_dim}, Part{layer.k, spec.kv_heads * spec.head_dim},
          Part{layer.v, spec.kv_heads * spec.head_dim}};
}

}  // namespace

ModelLoader::ModelLoader(const std::string& folder, std::shared_ptr<Backend> backend, const ModelOptions& options)
    : backend_(std::move(backend)),
      config_(runnable_config(folder)),
      spec_(family_of(config_).describe(config_)),
      checkpoint_(Checkpoint::open(folder, options.memory_map)),
      activations_(options.activations),
      batch_invariant_(options.batch_invariant) {
  check_options(options);
  dense_.emplace(*checkpoint_, config_, *backend_, activations_);
  check_tensors();
}

void ModelLoader::check_options(const ModelOptions& options) {
  check(activations_ == DType::bf16 || activations_ == DType::f32, ErrorCode::usage,
        "activations {}: a model runs with BF16 or F32", dtype_name(activations_));
  check(options.context >= 0 && options.context <= spec_.max_positions, ErrorCode::usage,
        "context {} is outside 0 .. {} (max_position_embeddings); 0 takes the model's own", options.context,
        spec_.max_positions);
  check(options.max_tokens >= 1, ErrorCode::usage, "max_tokens {}: the largest chunk must have at least 1 token",
        options.max_tokens);
  context_ = options.context == 0 ? spec_.max_positions : options.context;
  max_tokens_ = std::min(options.max_tokens, context_);
}

void ModelLoader::check_attention(const LayerSpec& layer) const {
  const std::array hidden{spec_.hidden}, head_dim{spec_.head_dim};
  dense_->check_tensor(layer.input_norm, hidden);
  dense_->check_tensor(layer.post_norm, hidden);
  if (!layer.q_norm.empty()) dense_->check_tensor(layer.q_norm, head_dim);
  if (!layer.k_norm.empty()) dense_->check_tensor(layer.k_norm, head_dim);
  dense_->check_linear(qkv_parts(spec_, layer), spec_.hidden, layer.qkv_bias);
  dense_->check_linear(std::array{Part{layer.o, spec_.hidden}}, spec_.heads * spec_.head_dim, layer.o_bias);
}

void ModelLoader::check_tensors() {
  dense_->check_tensor(spec_.embedding, std::array{spec_.vocabulary, spec_.hidden});
  dense_->check_tensor(spec_.final_norm, std::array{spec_.hidden});
  if (!spec_.head.empty()) dense_->check_linear(std::array{Part{spec_.head, spec_.vocabulary}}, spec_.hidden, false);
  std::vector<std::string> formats;
  for (const LayerSpec& layer : spec_.layers) {
    check_attention(layer);
    experts_.emplace_back();
    if (!layer.sparse) {
      dense_->check_linear(
          std::array{Part{layer.gate, spec_.dense_intermediate}, Part{layer.up, spec_.dense_intermediate}},
          spec_.hidden, false);
      dense_->check_linear(std::array{Part{layer.down, spec_.hidden}}, spec_.dense_intermediate, false);
      sizes_.intermediate = std::max(sizes_.intermediate, spec_.dense_intermediate);
      continue;
    }
    dense_->check_linear(std::array{Part{layer.router, spec_.experts}}, spec_.hidden, false);
    const ExpertLayerInfo info = describe_experts(*checkpoint_, config_, layer.experts);
    experts_.back() = info;
    if (std::ranges::find(formats, format_of(info)) == formats.end()) formats.push_back(format_of(info));
    if (info.quantised)
      sizes_.workspace_bytes = std::max(sizes_.workspace_bytes, plan_for(info).workspace_bytes());
    else
      sizes_.intermediate = std::max(sizes_.intermediate, spec_.expert_intermediate);
  }
  check_leftovers();
  format_text_ = formats.empty() ? "none" : fmt::format("{}", fmt::join(formats, "+"));
}

/// Tensors that the config leaves no place for mean that config and weights belong to different models.
void ModelLoader::check_leftovers() const {
  // "model.layers.0.input_layernorm..." -> "model.layers."
  const std::string first = spec_.layers.empty() ? std::string() : spec_.layers.front().input_norm;
  const std::string stem = first.substr(0, first.find("layers.") == std::string::npos ? 0 : first.find("layers.") + 7);
  for (const TensorInfo& tensor : checkpoint_->tensors()) {
    if (stem.empty() || !tensor.name.starts_with(stem)) continue;
    std::size_t layer = 0;
    const char* const begin = tensor.name.data() + stem.size();
    const auto [end, error] = std::from_chars(begin, tensor.name.data() + tensor.name.size(), layer);
    check(end == begin || (error == std::errc() && layer < spec_.layers.size()), ErrorCode::bad_input,
          "{}: '{}' belongs to a layer that config.json does not have ('num_hidden_layers' is {}); correct the config",
          checkpoint_->path(), shown_name(tensor.name), spec_.layers.size());
  }
  const std::string head = "lm_head.weight";
  if (!spec_.head.empty() || !checkpoint_->contains(head)) return;
  // Tied models are often stored with a copy of the embedding as their head; anything else would be ignored.
  const auto own = checkpoint_->read(head), embedding = checkpoint_->read(spec_.embedding);
  const ConstTensorView a = own.view(), b = embedding.view();
  check(a.dtype == b.dtype && a.bytes() == b.bytes() &&
            std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())) == 0,
        ErrorCode::bad_input,
        "{}: 'tie_word_embeddings' is true, but '{}' differs from '{}'; set it to false or remove the tensor",
        checkpoint_->path(), head, spec_.embedding);
}

Plan ModelLoader::plan_for(const ExpertLayerInfo& info) {
  Caps caps;
  caps.max_tokens = max_tokens_;
  caps.top_k = spec_.top_k;
  caps.experts = spec_.experts;
  caps.hidden = spec_.hidden;
  caps.intermediate = spec_.expert_intermediate;
  caps.format = info.format;
  caps.activation_dtype = activations_;
  caps.activation = spec_.activation;
  caps.gate_up_bias = info.gate_up_bias;
  caps.down_bias = info.down_bias;
  caps.batch_invariant = batch_invariant_;
  for (const Plan& known : plans_)
    if (known.caps() == caps) return known;
  plans_.push_back(plan(caps, backend_->device()));
  return plans_.back();
}

Router ModelLoader::load_router(const LayerSpec& layer) const {
  Router router;
  router.weight = dense_->linear(std::array{Part{layer.router, spec_.experts}}, spec_.hidden, false);
  router.top_k = spec_.top_k;
  router.renormalise = spec_.renormalise_top_k;
  router.activations = activations_;
  return router;
}

std::unique_ptr<FeedForward> ModelLoader::load_quantised(const LayerSpec& layer, const ExpertLayerInfo& info,
                                                         Router router) {
  const Plan plan = plan_for(info);
  const auto source = expert_source(*checkpoint_, config_, layer.experts);
  ExpertWeights weights = prepare_weights(plan, *backend_, *source);
  warm_up(plan, *backend_);
  return std::make_unique<QuantisedExperts>(*backend_, std::move(router), plan, std::move(weights));
}

std::unique_ptr<FeedForward> ModelLoader::load_plain(const LayerSpec& layer, const ExpertLayerInfo& info,
                                                     Router router) {
  const std::int64_t hidden = spec_.hidden, width = spec_.expert_intermediate;
  const auto matrix = static_cast<std::size_t>(checked_mul(hidden, width, "an expert", ErrorCode::bad_input));
  std::vector<float> gate_up(2 * matrix), down(matrix);
  const auto rows = static_cast<std::size_t>(width);
  std::vector<float> gate_up_bias(info.gate_up_bias ? 2 * rows : 0);
  std::vector<float> down_bias(info.down_bias ? static_cast<std::size_t>(hidden) : 0);
  const bool exactly_bf16 = info.source_dtype == DType::bf16 && info.layout == WeightLayout::plain;
  std::vector<GatedWeights> experts;
  for (std::int64_t e = 0; e < spec_.experts; ++e) {
    read_expert_f32(*checkpoint_, config_, layer.experts, e,
                    {std::span(gate_up).first(matrix), std::span(gate_up).last(matrix), down});
    if (info.gate_up_bias || info.down_bias)
      read_expert_bias_f32(*checkpoint_, config_, layer.experts, e,
                           {std::span(gate_up_bias).first(gate_up_bias.size() / 2),
                            std::span(gate_up_bias).last(gate_up_bias.size() / 2), down_bias});
    GatedWeights weights;
    weights.gate_up = dense_->from_f32(gate_up, 2 * width, hidden, gate_up_bias, exactly_bf16);
    weights.down = dense_->from_f32(down, hidden, width, down_bias, exactly_bf16);
    experts.push_back(std::move(weights));
  }
  return std::make_unique<PlainExperts>(backend_->interface().ops(), std::move(router), std::move(experts));
}

std::unique_ptr<FeedForward> ModelLoader::load_feed_forward(std::size_t index) {
  const LayerSpec& layer = spec_.layers[index];
  if (layer.sparse) {
    Router router = load_router(layer);
    const ExpertLayerInfo& info = experts_[index];
    return info.quantised ? load_quantised(layer, info, std::move(router)) : load_plain(layer, info, std::move(router));
  }
  GatedWeights weights;
  const std::int64_t width = spec_.dense_intermediate;
  weights.gate_up = dense_->linear(std::array{Part{layer.gate, width}, Part{layer.up, width}}, spec_.hidden, false);
  weights.down = dense_->linear(std::array{Part{layer.down, spec_.hidden}}, width, false);
  return std::make_unique<DenseFeedForward>(backend_->interface().ops(), std::move(weights), activations_);
}

Layer ModelLoader::load_layer(std::size_t index) {
  const LayerSpec& spec = spec_.layers[index];
  const auto optional_norm = [&](const std::string& name) {
    return name.empty() ? Workspace::allocate(std::uint64_t{0}, *backend_) : dense_->vector(name, spec_.head_dim);
  };
  return Layer{
      .input_norm = dense_->vector(spec.input_norm, spec_.hidden),
      .post_norm = dense_->vector(spec.post_norm, spec_.hidden),
      .q_norm = optional_norm(spec.q_norm),
      .k_norm = optional_norm(spec.k_norm),
      .qkv = dense_->linear(qkv_parts(spec_, spec), spec_.hidden, spec.qkv_bias),
      .o = dense_->linear(std::array{Part{spec.o, spec_.hidden}}, spec_.heads * spec_.head_dim, spec.o_bias),
      .feed_forward = load_feed_forward(index),
      .heads = spec_.heads,
      .eps = spec_.eps,
      .attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec_.head_dim))),
      .activations = activations_,
  };
}

std::unique_ptr<Decoder> ModelLoader::load() {
  const bool tied = spec_.head.empty();
  std::vector<Layer> layers;
  for (std::size_t index = 0; index < spec_.layers.size(); ++index) layers.push_back(load_layer(index));
  std::unique_ptr<DenseWeight> head;
  if (!tied)
    head = dense_->linear(std::array{Part{spec_.head, spec_.vocabulary}}, spec_.hidden, false);
  else if (!dense_->table_serves_as_linear(spec_.embedding))
    head = backend_->interface().ops().prepare_dense(checkpoint_->read(spec_.embedding).view(), {}, activations_);
  sizes_.tokens = max_tokens_;
  sizes_.hidden = spec_.hidden;
  sizes_.attended = spec_.heads * spec_.head_dim;
  sizes_.qkv = (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim;
  sizes_.experts = spec_.experts;
  sizes_.top_k = spec_.top_k;
  sizes_.activations = activations_;
  KvCacheView cache;
  cache.dtype = activations_;
  cache.kv_heads = spec_.kv_heads;
  cache.head_dim = spec_.head_dim;
  cache.capacity = context_;
  DecoderWeights weights{
      .embedding = dense_->table(spec_.embedding, spec_.vocabulary, spec_.hidden),
      .head = std::move(head),
      .final_norm = dense_->vector(spec_.final_norm, spec_.hidden),
      .layers = std::move(layers),
      .eps = spec_.eps,
      .rotary_dim = spec_.rotary_dim,
      .rope_theta = spec_.rope_theta,
      .sizes = sizes_,
  };
  return std::make_unique<Decoder>(backend_, std::move(weights), cache);
}

}  // namespace fourfold
