// Every buffer that a decoder step writes, sized once for the largest chunk and shared by all layers.
#include "model/step_buffers.h"

#include <algorithm>

#include "core/check.h"

namespace fourfold {

template <class T>
T* StepBuffers::take(std::int64_t rows, std::int64_t width, std::int64_t element_bytes) {
  const std::int64_t bytes =
      checked_mul(checked_mul(rows, width, "a decoder buffer"), element_bytes, "a decoder buffer");
  memory_.push_back(Workspace::allocate(static_cast<std::uint64_t>(bytes), backend_));
  return reinterpret_cast<T*>(memory_.back().span().data());
}

StepBuffers::StepBuffers(const StepSizes& s, Backend& backend) : backend_(backend) {
  const std::int64_t act = s.activations == DType::bf16 ? 2 : 4;
  const std::int64_t routed = checked_mul(s.tokens, s.top_k, "routes of a chunk");
  const std::int64_t dense_hidden = s.intermediate > 0 ? s.hidden : 0;
  residual = take<float>(s.tokens, s.hidden, 4);
  x = take<std::byte>(s.tokens, s.hidden, act);
  qkv = take<float>(s.tokens, s.qkv, 4);
  attended = take<std::byte>(s.tokens, s.attended, act);
  moe_out = take<std::byte>(s.tokens, s.hidden, act);
  router_logits = take<float>(s.tokens, s.experts, 4);
  route_scratch = take<float>(s.tokens, round_up(s.experts, 16), 4);
  expert_ids = take<std::int32_t>(routed, 1, 4);
  expert_weights = take<float>(routed, 1, 4);
  gathered = take<std::byte>(s.tokens, dense_hidden, act);
  gate_up = take<float>(s.tokens, 2 * s.intermediate, 4);
  activated = take<std::byte>(s.tokens, s.intermediate, act);
  expert_out = take<float>(s.tokens, dense_hidden, 4);
  route_tokens = take<std::int32_t>(routed, 1, 4);
  route_factors = take<float>(routed, 1, 4);
  token_ids = take<std::int32_t>(s.tokens, 1, 4);
  scratch = take<std::byte>(1, static_cast<std::int64_t>(s.scratch_bytes), 1);
  memory_.push_back(Workspace::allocate(s.workspace_bytes, backend));
  workspace = memory_.back().span();
  // the first step should not pay for the pages
  for (const Workspace& piece : memory_) std::ranges::fill(piece.span(), std::byte{0});
}

std::uint64_t StepBuffers::bytes() const noexcept {
  std::uint64_t total = 0;
  for (const Workspace& piece : memory_) total += piece.span().size();
  return total;
}

}  // namespace fourfold
