// The second half of a decoder layer: 4-bit experts through the fused operation, unquantised experts, or one dense
// gated layer. The residual stream gains sum_j w_j * down_e(silu(gate_e(x)) * up_e(x)).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/ops.h"
#include "fourfold/moe.h"
#include "model/step_buffers.h"

namespace fourfold {

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  /// Takes buffers.x [tokens, hidden]. Adds its result to `residual` [tokens, hidden], or returns it for the caller to
  /// add: [tokens, hidden] in the activation dtype, valid until the next call; null when it has been added.
  virtual const void* run(StepBuffers& buffers, std::int64_t tokens, float* residual) = 0;
  virtual std::uint64_t weight_bytes() const noexcept = 0;
};

/// softmax over all experts, top_k of them.
struct Router {
  std::unique_ptr<DenseWeight> weight;  // [experts, hidden]
  std::int64_t top_k = 0;
  bool renormalise = false;
  DType activations = DType::bf16;
  /// buffers.x -> buffers.expert_ids, buffers.expert_weights.
  void run(Ops& ops, StepBuffers& buffers, std::int64_t tokens) const;
};

/// Experts in 4 bits: plan, bind, run.
class QuantisedExperts final : public FeedForward {
 public:
  QuantisedExperts(Backend& backend, Router router, Plan plan, ExpertWeights weights);
  const void* run(StepBuffers& buffers, std::int64_t tokens, float* residual) override;
  std::uint64_t weight_bytes() const noexcept override { return weights_.bytes() + router_.weight->bytes(); }

 private:
  Backend& backend_;
  Router router_;
  Plan plan_;
  ExpertWeights weights_;
  std::optional<Binding> binding_;  // of the last token count: decoding binds once
  std::int64_t bound_tokens_ = -1;
};

/// Gate and up rows in one weight [2 * width, hidden], and down [hidden, width].
struct GatedWeights {
  std::unique_ptr<DenseWeight> gate_up, down;
  std::uint64_t bytes() const noexcept { return gate_up->bytes() + down->bytes(); }
};

/// Experts that are not quantised: expert after expert, each over its own tokens.
class PlainExperts final : public FeedForward {
 public:
  PlainExperts(Ops& ops, Router router, std::vector<GatedWeights> experts);
  const void* run(StepBuffers& buffers, std::int64_t tokens, float* residual) override;
  std::uint64_t weight_bytes() const noexcept override;

 private:
  void sort_routes(StepBuffers& buffers, std::int64_t tokens);
  Ops& ops_;
  Router router_;
  std::vector<GatedWeights> experts_;
  std::vector<std::int64_t> first_route_;  // [experts + 1]
};

/// One gated layer for all tokens.
class DenseFeedForward final : public FeedForward {
 public:
  DenseFeedForward(Ops& ops, GatedWeights weights, DType activations)
      : ops_(ops), weights_(std::move(weights)), activations_(activations) {}
  const void* run(StepBuffers& buffers, std::int64_t tokens, float* residual) override;
  std::uint64_t weight_bytes() const noexcept override { return weights_.bytes(); }

 private:
  Ops& ops_;
  GatedWeights weights_;
  DType activations_;
};

}  // namespace fourfold
