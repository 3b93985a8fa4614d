// The dense operations of a decoder, as every backend provides them. All pointers are the backend's memory.
// Activations between operations are fp32 [rows, width]; an implementation rounds matmul inputs to the activation
// dtype it was told (bf16 or f32) and accumulates in fp32. Nothing here allocates after prepare_*.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fourfold/tensor.h"

namespace fourfold {

/// A dense weight [n, k] in a backend's own layout, optional bias [n]. Immutable.
class DenseWeight {
 public:
  virtual ~DenseWeight() = default;
  virtual std::int64_t rows() const noexcept = 0;     // n
  virtual std::int64_t columns() const noexcept = 0;  // k
  virtual std::uint64_t bytes() const noexcept = 0;
};

struct RopeTable {
  std::int64_t positions = 0, half_dim = 0;
  const float* cosine = nullptr;  // [positions, half_dim]
  const float* sine = nullptr;    // [positions, half_dim]
};

/// Grouped-query causal attention of `tokens` new rows against a cache that already holds them.
struct AttentionCall {
  const float* q = nullptr;       // [tokens, heads, head_dim], normalised and rotated
  void* k_cache = nullptr;        // [kv_heads, capacity, head_dim] cache dtype
  void* v_cache = nullptr;        // [kv_heads, capacity, head_dim] cache dtype
  DType cache_dtype = DType::bf16;
  float* out = nullptr;           // [tokens, heads, head_dim]
  std::int64_t tokens = 0, past = 0;  // row i attends to positions 0 .. past + i
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, capacity = 0;
  float scale = 1;
  std::byte* scratch = nullptr;   // attention_scratch_bytes()
};

class Ops {
 public:
  virtual ~Ops() = default;
  /// weight [n, k] bf16, f16 or f32; bias [n] or absent. Rounded to `activations` precision only if wider.
  virtual std::unique_ptr<DenseWeight> prepare_dense(ConstTensorView weight, ConstTensorView bias,
                                                     DType activations) = 0;
  /// y[m, n] = round(x)[m, k] * w^T + bias. `scratch` of matmul_scratch_bytes(m, k).
  virtual void matmul(const float* x, std::int64_t m, const DenseWeight& weight, float* y, std::byte* scratch) = 0;
  virtual std::uint64_t matmul_scratch_bytes(std::int64_t m, std::int64_t k) const = 0;
  /// y[i] = x[i] * rsqrt(mean(x[i]^2) + eps) * weight, rows of `width`; x and y may be the same.
  virtual void rms_norm(const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
                        float* y) = 0;
  /// Rotates halves (NeoX order) of [tokens, heads, head_dim] in place, position = first_position + row.
  virtual void rope(float* x, const RopeTable& table, std::int64_t first_position, std::int64_t tokens,
                    std::int64_t heads, std::int64_t head_dim) = 0;
  /// Writes k, v [tokens, kv_heads, head_dim] at positions past .. past + tokens - 1.
  virtual void append_kv(const AttentionCall& call, const float* k, const float* v) = 0;
  virtual void attention(const AttentionCall& call) = 0;
  virtual std::uint64_t attention_scratch_bytes(std::int64_t tokens, std::int64_t capacity,
                                                std::int64_t heads) const = 0;
  /// softmax over all experts, then the top_k largest (lowest index first among equals), optionally renormalised.
  virtual void route_softmax_topk(const float* logits, std::int64_t tokens, std::int64_t experts, std::int64_t top_k,
                                  bool renormalise, std::int32_t* ids, float* weights) = 0;
  virtual void silu_mul(const float* gate, const float* up, std::int64_t count, float* y) = 0;  // silu(gate) * up
  virtual void add(float* x, const float* y, std::int64_t count) = 0;                            // x += y
  /// Rounds fp32 to the activation dtype and back, element by element.
  virtual void to_activation(const float* x, std::int64_t count, DType dtype, void* y) = 0;
  virtual void from_activation(const void* x, DType dtype, std::int64_t count, float* y) = 0;
};

}  // namespace fourfold
