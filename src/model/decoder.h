// Token ids in, logits out: embedding, layers, final norm, head, over one key/value cache, in chunks of bounded size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "fourfold/backend.h"
#include "model/kv_cache.h"
#include "model/layer.h"
#include "model/step_buffers.h"

namespace fourfold {

/// The weights of a decoder and what they do not say about it.
struct DecoderWeights {
  std::unique_ptr<DenseWeight> embedding;  // [vocabulary, hidden]
  std::unique_ptr<DenseWeight> head;       // [vocabulary, hidden], or null: the embedding
  Workspace final_norm;                    // fp32 [hidden]
  std::vector<Layer> layers;
  float eps = 0;
  std::int64_t rotary_dim = 0;
  double rope_theta = 0;
  StepSizes sizes;  // scratch_bytes is filled in by the decoder

  const DenseWeight& head_weight() const noexcept { return head ? *head : *embedding; }
};

/// Not thread-safe.
class Decoder {
 public:
  /// Allocates everything that a step needs. `cache_shape.capacity` is the context.
  Decoder(std::shared_ptr<Backend> backend, DecoderWeights weights, const KvCacheView& cache_shape);
  std::int64_t vocabulary() const noexcept { return weights_.embedding->rows(); }
  std::int64_t context() const noexcept { return cache_.capacity(); }
  std::int64_t position() const noexcept { return cache_.position(); }
  std::uint64_t weight_bytes() const noexcept;
  void reset() noexcept { cache_.reset(); }
  /// As Model::forward.
  std::span<const float> forward(std::span<const std::int32_t> ids, bool all_positions);

 private:
  void check_ids(std::span<const std::int32_t> ids) const;
  /// One chunk; the last `wanted` rows go to `logits` [wanted, vocabulary]. `wanted` may be 0.
  void step(std::span<const std::int32_t> ids, std::int64_t wanted, float* logits);
  void make_rope_table();

  std::shared_ptr<Backend> backend_;
  Ops& ops_;
  DecoderWeights weights_;
  KvCache cache_;
  StepBuffers buffers_;
  Workspace rope_;
  Workspace last_logits_, all_logits_;
};

/// The scratch that a decoder's operations need, in bytes.
std::uint64_t decoder_scratch_bytes(const Ops& ops, const DecoderWeights& weights, const KvCacheView& cache_shape);

}  // namespace fourfold
