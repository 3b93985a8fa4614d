// The dense operations of a decoder, as every backend provides them: everything around the expert layers.
// The residual stream, projections and logits are fp32; what enters a matrix product is held in the activation
// dtype (bf16 or f32) and accumulated in fp32. Nothing here allocates after prepare_dense. A row's bits do not depend
// on the other rows of the call, nor on how many there are. All pointers are the backend's memory, none may be null
// unless said, and outputs never overlap inputs unless said. Thread-safe for calls with different outputs and scratch.
#pragma once

#include <cstdint>
#include <memory>

#include "fourfold/tensor.h"

namespace fourfold {

/// A dense weight [n, k] in a backend's own layout, with an optional bias [n]. Immutable.
class DenseWeight {
 public:
  virtual ~DenseWeight() = default;
  virtual std::int64_t rows() const noexcept = 0;     // n
  virtual std::int64_t columns() const noexcept = 0;  // k
  virtual std::uint64_t bytes() const noexcept = 0;
};

/// One matrix product y[m, n] = x[m, k] * w^T + bias.
struct MatmulCall {
  const void* x = nullptr;      // [m, k] x_dtype
  DType x_dtype = DType::bf16;  // the activation dtype the weight was prepared for
  std::int64_t m = 0;
  float* y = nullptr;            // [m, n]
  bool add = false;              // y += instead of y =
  std::byte* scratch = nullptr;  // matmul_scratch_bytes(k, x_dtype), 64-aligned; may be null when that is 0
};

/// y = normalised x, after x += addend when there is one.
struct RmsNormCall {
  float* x = nullptr;            // [rows, width]; written only when there is an addend
  const void* addend = nullptr;  // [rows, width] addend_dtype, or null
  DType addend_dtype = DType::bf16;
  const float* weight = nullptr;  // [width]
  float eps = 0;
  std::int64_t rows = 0, width = 0;
  void* y = nullptr;            // [rows, width] y_dtype
  DType y_dtype = DType::bf16;  // bf16 (rounded to nearest even) or f32
};

/// Cosines and sines by position. half_dim pairs (i, i + half_dim) of a head rotate; dims beyond 2 * half_dim stay.
struct RopeTable {
  std::int64_t positions = 0, half_dim = 0;
  const float* cosine = nullptr;  // [positions, half_dim]
  const float* sine = nullptr;    // [positions, half_dim]
};

/// Keys and values of one layer, in a backend's own layout. Any content is fine at first.
struct KvCacheView {
  std::byte* data = nullptr;  // kv_cache_bytes(), 64-aligned
  DType dtype = DType::bf16;  // bf16 or f32
  std::int64_t kv_heads = 0, head_dim = 0, capacity = 0;
};

/// What happens between the projections and attention: per-head norms, rotation, append to the cache.
struct PrepareQkvCall {
  float* qkv = nullptr;  // [tokens, heads + 2 * kv_heads, head_dim]: q, k, v; the q part is rewritten in place
  std::int64_t tokens = 0, past = 0;  // row i is position past + i
  std::int64_t heads = 0;
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;  // [head_dim] or null
  float eps = 0;
  RopeTable rope;
  KvCacheView cache;
};

/// Grouped-query causal attention of `tokens` new rows against a cache that already holds them.
struct AttentionCall {
  const float* qkv = nullptr;         // as prepare_qkv left it
  std::int64_t tokens = 0, past = 0;  // row i attends to positions 0 .. past + i
  std::int64_t heads = 0;
  float scale = 1;
  KvCacheView cache;
  void* out = nullptr;           // [tokens, heads, head_dim] cache.dtype
  std::byte* scratch = nullptr;  // attention_scratch_bytes(), 64-aligned
};

struct RouteCall {
  const float* logits = nullptr;                    // [tokens, experts]
  std::int64_t tokens = 0, experts = 0, top_k = 0;  // top_k <= experts
  bool renormalise = false;                         // divide the chosen weights by their sum
  std::int32_t* ids = nullptr;                      // out [tokens, top_k], by falling probability
  float* weights = nullptr;                         // out [tokens, top_k]
  float* scratch = nullptr;                         // [tokens, round_up(experts, 16)]
};

class Ops {
 public:
  virtual ~Ops() = default;

  /// `weight` [n, k] bf16, f16 or f32 with even k; `bias` [n] or absent. Values wider than `activations` are rounded to
  /// it; bf16 sources stay bf16 in memory. Throws unsupported for another dtype or odd k.
  virtual std::unique_ptr<DenseWeight> prepare_dense(ConstTensorView weight, ConstTensorView bias,
                                                     DType activations) = 0;
  virtual std::uint64_t matmul_scratch_bytes(std::int64_t k, DType x_dtype) const = 0;
  virtual void matmul(const DenseWeight& weight, const MatmulCall& call) = 0;
  /// y[i] = row ids[i] of the weight as fp32; ids are in range.
  virtual void gather_rows(const DenseWeight& weight, const std::int32_t* ids, std::int64_t count, float* y) = 0;

  /// y = x / sqrt(mean(x^2) + eps) * weight, row by row.
  virtual void rms_norm(const RmsNormCall& call) = 0;

  virtual std::uint64_t kv_cache_bytes(const KvCacheView& shape) const = 0;
  virtual void prepare_qkv(const PrepareQkvCall& call) = 0;
  virtual std::uint64_t attention_scratch_bytes(const KvCacheView& shape, std::int64_t heads) const = 0;
  virtual void attention(const AttentionCall& call) = 0;

  /// Softmax over all experts in fp32, then the top_k largest, the lowest index first among equals. A row with NaN
  /// keeps valid, distinct ids and NaN weights.
  virtual void route_softmax_topk(const RouteCall& call) = 0;

  /// y = silu(gate) * up, rounded once to y_dtype. gate_up [rows, 2 * width]: gate, then up.
  virtual void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t width, void* y, DType y_dtype) = 0;
  /// Copies rows: y[i] = x[index[i]], `row_bytes` each.
  virtual void gather(const void* x, const std::int32_t* index, std::int64_t count, std::int64_t row_bytes,
                      void* y) = 0;
  /// out[index[i]] += factor[i] * y[i], rows of `width` fp32; the indices are distinct.
  virtual void scatter_add(const float* y, const std::int32_t* index, const float* factor, std::int64_t count,
                           std::int64_t width, float* out) = 0;
};

}  // namespace fourfold
