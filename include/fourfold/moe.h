// The operation: prepare_weights once, bind per call, run. out[t] = sum_j w[t,j] * down_e(act(gate_up_e(x[t]))),
// e = topk_ids[t,j]; docs/architecture.md section "The contract" has the ten points.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fourfold/backend.h"
#include "fourfold/plan.h"
#include "fourfold/tensor.h"
#include "fourfold/weights.h"

namespace fourfold {

/// Tensors of one call. T live tokens, 0 .. max_tokens; k = caps.top_k; H = caps.hidden. All contiguous, on the
/// plan's device. The inputs are never written.
struct MoeTensors {
  const ExpertWeights* weights = nullptr;
  ConstTensorView x;             ///< in  [T, H], caps.activation_dtype
  ConstTensorView topk_ids;      ///< in  [T, k], i32 or i64; -1 adds zero; outside [-1, id_count) adds zero, counted
  ConstTensorView topk_weights;  ///< in  [T, k], f32
  TensorView out;                ///< out [T, H], caps.activation_dtype; every row is written; must not overlap inputs
  ConstTensorView expert_map;    ///< in  [global_experts] i32 -> local expert or -1; only with caps.global_experts
  std::uint32_t* invalid_ids = nullptr;  ///< optional: the number of ids out of range is added, never reset
};

struct BoundMoe;  // src/backend/backend_interface.h

/// A checked call. Holds views, not data: backend, tensors and workspace must outlive it. Movable.
class Binding {
 public:
  explicit Binding(std::unique_ptr<BoundMoe> bound);
  ~Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  const BoundMoe& bound() const noexcept { return *bound_; }

 private:
  std::unique_ptr<BoundMoe> bound_;
};

/// Packs a layer's experts into the order the plan wants, expert by expert: peak memory is the result plus one
/// expert of source. Allocates on the device. Throws bad_input for a scale, zero point or global that is refused.
ExpertWeights prepare_weights(const Plan& plan, Backend& backend, ExpertSource& source);

/// Resolves every kernel the plan can launch. Idempotent, thread-safe.
void warm_up(const Plan& plan, Backend& backend);

/// Checks everything that can be checked on the host. Host only; allocates no device memory.
/// Throws usage: shape, dtype, missing or superfluous tensor, overlap of out with an input or the workspace,
/// workspace short or not aligned to 256, weights of another plan. Call it qualified, fourfold::bind: the span lets
/// argument-dependent lookup find std::bind too.
Binding bind(const Plan& plan, Backend& backend, const MoeTensors& tensors, std::span<std::byte> workspace,
             Stream stream = {});

/// Bindings for a call of any number of tokens: slices of at most plan.caps().max_tokens rows, in order, all in one
/// workspace; to be run one after another on one stream. Checks every slice; effects and errors of bind. Throws usage for
/// tokens with a plan whose max_tokens is 0.
std::vector<Binding> bind_sliced(const Plan& plan, Backend& backend, const MoeTensors& tensors,
                                 std::span<std::byte> workspace, Stream stream = {});

/// A batch longer than max_tokens through one plan and one workspace: bind_sliced, then run on every slice; nothing is
/// launched unless every slice was accepted. Legal under capture where bind is. With Caps::batch_invariant the result
/// has the bits of one call of a plan that serves the whole batch.
void run_sliced(const Plan& plan, Backend& backend, const MoeTensors& tensors, std::span<std::byte> workspace,
                Stream stream = {});

/// Launches. Never allocates, compiles, loads, or synchronises more than the backend's stream order implies.
/// On the CPU the result is there on return. Bindings that share a workspace must not run at the same time.
/// On a GPU legal under capture; the graph then holds addresses: backend, weights, tensors and workspace must outlive it.
void run(const Binding& binding);

}  // namespace fourfold
