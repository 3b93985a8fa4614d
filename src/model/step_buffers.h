// Every buffer that a decoder step writes, sized once for the largest chunk and shared by all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/ops.h"
#include "fourfold/backend.h"

namespace fourfold {

/// Widths of the step buffers over all layers.
struct StepSizes {
  std::int64_t tokens = 0;  // T, the largest chunk
  std::int64_t hidden = 0, qkv = 0, attended = 0;
  std::int64_t experts = 0, top_k = 0;
  std::int64_t intermediate = 0;      // largest feed-forward width that runs through dense operations; 0: none
  std::uint64_t scratch_bytes = 0;    // matmul and attention
  std::uint64_t workspace_bytes = 0;  // of the 4-bit expert plans
  DType activations = DType::bf16;
};

/// Owns the memory; "act" is the activation dtype.
class StepBuffers {
 public:
  StepBuffers(const StepSizes& sizes, Backend& backend);
  std::uint64_t bytes() const noexcept;

  float* residual = nullptr;             // [T, hidden]
  void* x = nullptr;                     // [T, hidden] act: normalised input of a matrix product
  float* qkv = nullptr;                  // [T, qkv]
  void* attended = nullptr;              // [T, attended] act
  void* moe_out = nullptr;               // [T, hidden] act
  float* router_logits = nullptr;        // [T, experts]
  float* route_scratch = nullptr;        // [T, round_up(experts, 16)]
  std::int32_t* expert_ids = nullptr;    // [T, top_k]
  float* expert_weights = nullptr;       // [T, top_k]
  void* gathered = nullptr;              // [T, hidden] act: one expert's tokens
  float* gate_up = nullptr;              // [T, 2 * intermediate]
  void* activated = nullptr;             // [T, intermediate] act
  float* expert_out = nullptr;           // [T, hidden]
  std::int32_t* route_tokens = nullptr;  // [T * top_k] tokens by expert
  float* route_factors = nullptr;        // [T * top_k]
  std::int32_t* token_ids = nullptr;     // [T]
  std::byte* scratch = nullptr;
  std::span<std::byte> workspace;

 private:
  template <class T>
  T* take(std::int64_t rows, std::int64_t width, std::int64_t element_bytes);
  Backend& backend_;
  std::vector<Workspace> memory_;
};

}  // namespace fourfold
