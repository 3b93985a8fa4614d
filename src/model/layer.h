// One decoder layer: norm, attention, norm, feed-forward, around a residual stream in fp32.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/ops.h"
#include "fourfold/backend.h"
#include "model/feed_forward.h"
#include "model/step_buffers.h"

namespace fourfold {

/// Weights and sizes of one layer.
struct Layer {
  Workspace input_norm, post_norm;   // fp32 [hidden]
  Workspace q_norm, k_norm;          // fp32 [head_dim] or empty
  std::unique_ptr<DenseWeight> qkv;  // [(heads + 2 * kv_heads) * head_dim, hidden]
  std::unique_ptr<DenseWeight> o;    // [hidden, heads * head_dim]
  std::unique_ptr<FeedForward> feed_forward;
  std::int64_t heads = 0;
  float eps = 0, attention_scale = 0;
  DType activations = DType::bf16;

  std::uint64_t weight_bytes() const noexcept;
};

/// What the step over all layers carries along.
struct LayerStep {
  std::int64_t tokens = 0, past = 0;  // rows of this chunk, and positions before them
  std::int64_t wanted = 0;            // last rows of the chunk that somebody reads after this layer, 1 .. tokens
  RopeTable rope;
  KvCacheView cache;
  const void* addend = nullptr;  // in: to be added to all residual rows; out: to the wanted ones; or null
};

/// buffers.residual [tokens, hidden] -> its wanted last rows, in place.
void run_layer(Ops& ops, Layer& layer, StepBuffers& buffers, LayerStep& step);

}  // namespace fourfold
