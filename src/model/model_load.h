// From a checkpoint folder to a decoder: checks every tensor against the config first, then packs layer by layer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fourfold/model.h"
#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/dense_reader.h"
#include "model/expert_reader.h"
#include "model/families/family.h"
#include "model/hf_config.h"

namespace fourfold {

/// Builds the weights of one checkpoint. Used once, from one thread.
class ModelLoader {
 public:
  /// Throws bad_input or unsupported for the first tensor that is absent or does not fit the config, before any weight
  /// is read.
  ModelLoader(const std::string& folder, std::shared_ptr<Backend> backend, const ModelOptions& options);
  /// Reads and packs. Peak memory: the result and one dense weight or one expert of source.
  std::unique_ptr<Decoder> load();
  /// "nvfp4", "int4 g32", "bf16", several joined by "+", of the experts. After construction.
  const std::string& format_text() const noexcept { return format_text_; }
  /// Of the 4-bit expert layers, one for each distinct caps. After load().
  const std::vector<Plan>& expert_plans() const noexcept { return plans_; }

 private:
  void check_options(const ModelOptions& options);
  void check_tensors();
  void check_leftovers() const;
  void check_attention(const LayerSpec& layer) const;
  Layer load_layer(std::size_t index);
  std::unique_ptr<FeedForward> load_feed_forward(std::size_t index);
  std::unique_ptr<FeedForward> load_quantised(const LayerSpec& layer, const ExpertLayerInfo& info, Router router);
  std::unique_ptr<FeedForward> load_plain(const LayerSpec& layer, const ExpertLayerInfo& info, Router router);
  Router load_router(const LayerSpec& layer) const;
  Plan plan_for(const ExpertLayerInfo& info);

  std::shared_ptr<Backend> backend_;
  ModelConfig config_;
  DecoderSpec spec_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  DType activations_;
  bool batch_invariant_;
  std::int64_t max_tokens_ = 0, context_ = 0;
  std::optional<DenseReader> dense_;
  std::vector<ExpertLayerInfo> experts_;  // by layer; default for dense layers
  std::vector<Plan> plans_;               // one for each distinct caps
  std::string format_text_;
  StepSizes sizes_;
};

}  // namespace fourfold
