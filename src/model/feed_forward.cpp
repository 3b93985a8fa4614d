// The second half of a decoder layer: 4-bit experts through the fused operation, unquantised experts, or one dense
// gated layer.
#include "model/feed_forward.h"

#include <algorithm>

#include "backend/backend_interface.h"

namespace fourfold {

void Router::run(Ops& ops, StepBuffers& buffers, std::int64_t tokens) const {
  MatmulCall call;
  call.x = buffers.x;
  call.x_dtype = activations;
  call.m = tokens;
  call.y = buffers.router_logits;
  call.scratch = buffers.scratch;
  ops.matmul(*weight, call);
  RouteCall route;
  route.logits = buffers.router_logits;
  route.tokens = tokens;
  route.experts = weight->rows();
  route.top_k = top_k;
  route.renormalise = renormalise;
  route.ids = buffers.expert_ids;
  route.weights = buffers.expert_weights;
  route.scratch = buffers.route_scratch;
  ops.route_softmax_topk(route);
}

QuantisedExperts::QuantisedExperts(Backend& backend, Router router, Plan plan, ExpertWeights weights)
    : backend_(backend), router_(std::move(router)), plan_(std::move(plan)), weights_(std::move(weights)) {}

const void* QuantisedExperts::run(StepBuffers& buffers, std::int64_t tokens, float*) {
  router_.run(backend_.interface().ops(), buffers, tokens);
  if (tokens != bound_tokens_) {
    const Caps& caps = plan_.caps();
    MoeTensors tensors;
    tensors.weights = &weights_;
    tensors.x = ConstTensorView(buffers.x, caps.activation_dtype, {tokens, caps.hidden});
    tensors.topk_ids = ConstTensorView(buffers.expert_ids, DType::i32, {tokens, caps.top_k});
    tensors.topk_weights = ConstTensorView(buffers.expert_weights, DType::f32, {tokens, caps.top_k});
    tensors.out = TensorView(buffers.moe_out, caps.activation_dtype, {tokens, caps.hidden});
    binding_ = bind(plan_, backend_, tensors, buffers.workspace);
    bound_tokens_ = tokens;
  }
  fourfold::run(*binding_);
  return buffers.moe_out;
}

namespace {

/// y (+)= down(silu(gate(x)) * up(x)).
struct GatedCall {
  const void* x;
  std::int64_t tokens;
  float* y;
  bool add;
};

void run_gated(Ops& ops, const GatedWeights& weights, DType activations, StepBuffers& buffers, const GatedCall& gated) {
  MatmulCall call;
  call.x = gated.x;
  call.x_dtype = activations;
  call.m = gated.tokens;
  call.y = buffers.gate_up;
  call.scratch = buffers.scratch;
  ops.matmul(*weights.gate_up, call);
  ops.silu_mul(buffers.gate_up, gated.tokens, weights.down->columns(), buffers.activated, activations);
  call.x = buffers.activated;
  call.y = gated.y;
  call.add = gated.add;
  ops.matmul(*weights.down, call);
}

}  // namespace

PlainExperts::PlainExperts(Ops& ops, Router router, std::vector<GatedWeights> experts)
    : ops_(ops), router_(std::move(router)), experts_(std::move(experts)), first_route_(experts_.size() + 1) {}

std::uint64_t PlainExperts::weight_bytes() const noexcept {
  std::uint64_t total = router_.weight->bytes();
  for (const GatedWeights& expert : experts_) total += expert.bytes();
  return total;
}

/// Routes by expert, then token: first_route_, route_tokens, route_factors.
void PlainExperts::sort_routes(StepBuffers& buffers, std::int64_t tokens) {
  const std::int64_t routes = tokens * router_.top_k;
  std::ranges::fill(first_route_, 0);
  for (std::int64_t r = 0; r < routes; ++r) ++first_route_[static_cast<std::size_t>(buffers.expert_ids[r]) + 1];
  for (std::size_t e = 1; e < first_route_.size(); ++e) first_route_[e] += first_route_[e - 1];
  for (std::int64_t r = 0; r < routes; ++r) {
    const std::int64_t place = first_route_[static_cast<std::size_t>(buffers.expert_ids[r])]++;
    buffers.route_tokens[place] = static_cast<std::int32_t>(r / router_.top_k);
    buffers.route_factors[place] = buffers.expert_weights[r];
  }
  for (std::size_t e = first_route_.size() - 1; e > 0; --e) first_route_[e] = first_route_[e - 1];
  first_route_[0] = 0;
}

const void* PlainExperts::run(StepBuffers& buffers, std::int64_t tokens, float* residual) {
  router_.run(ops_, buffers, tokens);
  sort_routes(buffers, tokens);
  const std::int64_t hidden = router_.weight->columns();
  const std::int64_t row_bytes = hidden * dtype_bits(router_.activations) / 8;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const std::int64_t first = first_route_[e], count = first_route_[e + 1] - first;
    if (count == 0) continue;
    ops_.gather(buffers.x, buffers.route_tokens + first, count, row_bytes, buffers.gathered);
    run_gated(ops_, experts_[e], router_.activations, buffers, {buffers.gathered, count, buffers.expert_out, false});
    ops_.scatter_add(buffers.expert_out, buffers.route_tokens + first, buffers.route_factors + first, count, hidden,
                     residual);
  }
  return nullptr;
}

const void* DenseFeedForward::run(StepBuffers& buffers, std::int64_t tokens, float* residual) {
  run_gated(ops_, weights_, activations_, buffers, {buffers.x, tokens, residual, true});
  return nullptr;
}

}  // namespace fourfold
