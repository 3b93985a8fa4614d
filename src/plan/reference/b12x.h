// The scratch arena of b12x 1.1.0 (once SparkInfer), W4A16 fused MoE: packed and native NVFP4 and MXFP4, Trellis
// (EXL3), tensor and expert parallel. Source: the published study of its planner, checked against every total there.
//
//   R rows = capacity_tokens x top_k; the capacity is the next power of two, for Trellis the token count itself.
//   One arena: the router's part, then caches, reduction planes, route packing; every start a multiple of 16.
#pragma once

#include <cstdint>
#include <vector>

#include "fourfold/plan.h"
#include "plan/reference/request.h"

namespace fourfold::reference {

/// What b12x's planner looks at.
struct B12xProblem {
  enum class Layout : std::uint8_t { native, packed, trellis };
  std::int64_t max_tokens = 1, top_k = 1;
  std::int64_t experts = 1;         ///< of this rank
  std::int64_t global_experts = 0;  ///< > 0: the expert-parallel planner, which packs over all of them
  std::int64_t hidden = 0, intermediate = 0;
  bool gated = true, bf16 = true;
  bool micro = false;  ///< the native small-batch kernel can serve it
  Layout layout = Layout::native;
  std::int64_t pinned_block = 0;  ///< 0: chosen by token count
  std::int64_t multiprocessors = 0;
};

/// The smallest power of two that is at least `tokens`. Pure.
std::int64_t b12x_bucket(std::int64_t tokens) noexcept;
/// Tokens that the arena is sized for: the bucket, or max_tokens for Trellis. Pure.
std::int64_t b12x_capacity(const B12xProblem& problem) noexcept;
/// The route blocks that a call of 1 .. capacity tokens can choose, ascending. Pure.
std::vector<std::int64_t> b12x_blocks(const B12xProblem& problem);

struct B12xArena {
  std::vector<ReferenceSegment> segments;
  std::int64_t router_bytes = 0;  ///< logits and top-k staging, with the padding behind them
  std::int64_t core_bytes = 0;
  std::int64_t total_bytes() const noexcept { return router_bytes + core_bytes; }
};
/// Throws unsupported when a size leaves 63 bits. Pure.
B12xArena b12x_arena(const B12xProblem& problem);

}  // namespace fourfold::reference
