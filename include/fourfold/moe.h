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
  ConstTensorView x;             ///< in  [T, H], caps.activation_dtype; on a GPU its base is aligned to 16 bytes
  ConstTensorView topk_ids;      ///< in  [T, k], i32 or i64; -1 adds zero; outside [-1, id_count) adds zero, counted
  ConstTensorView topk_weights;  ///< in  [T, k], f32
  TensorView out;                ///< out [T, H], caps.activation_dtype; every row is written; must not overlap inputs
  ConstTensorView expert_map;    ///< in  [global_experts] i32 -> local expert or -1; only with caps.global_experts
  std::uint32_t* invalid_ids = nullptr;  ///< optional: the number of ids out of range is added, never reset
};

struct BoundMoe;  // src/backend/backend_interface.h

/// A checked call. Holds views, not data: backend, tensors and workspace must outlive it; keeps plan and weights alive.
/// Movable. Any thread may run it, one at a time.
class Binding {
 public:
  /// For bind(). Throws usage for null.
  explicit Binding(std::unique_ptr<BoundMoe> bound);
  ~Binding();
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  /// The call below the public functions, for src/ and tests.
  const BoundMoe& bound() const noexcept { return *bound_; }

 private:
  std::unique_ptr<BoundMoe> bound_;
};

/// Packs a layer's experts into the order the plan wants, expert by expert: peak memory is the result plus one expert
/// of source. Allocates on the device, on a GPU page-locked host memory for one expert too; done on return. Thread-safe
/// for separate sources; legal while streams are captured, by any thread. Throws bad_input for a scale, zero point or
/// global that is refused, usage for a plan of another device, unavailable when the memory is not there; what `source`
/// throws passes through.
ExpertWeights prepare_weights(const Plan& plan, Backend& backend, ExpertSource& source);

/// Resolves and loads every kernel the plan can launch, so that no later bind of this plan does. On a GPU it may read
/// packs and the disk cache, and compile for seconds. Idempotent, thread-safe; legal while streams are captured, by
/// this thread or another. Nothing to do on the CPU. Throws usage for a plan of another device and for a miss after
/// freeze(), unavailable when there is neither a pack with the kernel nor a compiler, unsupported when the compiler
/// refuses the code and internal when the device does. To serve several GPUs, call it with the backend of each.
void warm_up(const Plan& plan, Backend& backend);

/// Checks everything that can be checked on the host. Host only, thread-safe; allocates no device memory and looks at
/// no tensor's data. A few microseconds once the plan is warm; loads, as warm_up does, what warm_up did not.
/// `stream` is where run() will launch: null on the CPU, never null on a GPU.
/// Throws usage: shape, dtype, missing or superfluous tensor, overlap of out with an input or the workspace,
/// workspace short or not aligned to 256, weights of another layout, plan or weights of another device; and a kernel
/// that is not loaded while `stream` is captured (active or invalidated) or after freeze(), before any disk look-up,
/// compile or load, naming the kernel, the token count and the call that fixes it; the stream stays as it was.
/// Else as warm_up. Call it qualified, fourfold::bind: the span lets argument-dependent lookup find std::bind too.
Binding bind(const Plan& plan, Backend& backend, const MoeTensors& tensors, std::span<std::byte> workspace,
             Stream stream = {});

/// Bindings for a call of any number of tokens: slices of at most plan.caps().max_tokens rows, in order, all in one
/// workspace; to be run one after another on one stream. Checks every slice; effects and errors of bind. Throws usage
/// for tokens with a plan whose max_tokens is 0.
std::vector<Binding> bind_sliced(const Plan& plan, Backend& backend, const MoeTensors& tensors,
                                 std::span<std::byte> workspace, Stream stream = {});

/// A batch longer than max_tokens through one plan and one workspace: bind_sliced, then run on every slice; nothing is
/// launched unless every slice was accepted. Legal under capture where bind is. With Caps::batch_invariant the result
/// has the bits of one call of a plan that serves the whole batch.
void run_sliced(const Plan& plan, Backend& backend, const MoeTensors& tensors, std::span<std::byte> workspace,
                Stream stream = {});

/// Launches, and nothing for zero tokens. Never allocates, compiles, loads, or synchronises more than the backend's
/// stream order implies. On the CPU the result is there on return; on a GPU it is enqueued on the binding's stream.
/// Thread-safe, but bindings that share a workspace must not run at the same time. On a GPU legal under capture; the
/// graph then holds addresses: backend, weights, tensors and workspace must outlive it. Throws internal with the
/// driver's reason when a launch fails, naming the kernel.
void run(const Binding& binding);

}  // namespace fourfold
