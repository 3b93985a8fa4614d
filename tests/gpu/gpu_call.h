// Layers and calls in the memory of a GPU, with guard areas round everything that a kernel gets an address of.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cuda/handles.h"
#include "fourfold/verify.h"
#include "moe/random_call.h"
#include "support/moe_layer.h"

namespace fourfold::gpu_test {

using support::Bytes;

/// Bytes of each guard area: BL-05 of the bug log asks for 4 KiB.
inline constexpr std::uint64_t kGuardBytes = 4096;

/// `bytes` bytes of device memory, base aligned to 256 and filled with 0xff, with a guard area of 0xff bytes (NaN in
/// every dtype: what is read there shows) before the first byte and after the last one. While FlushAllocations lives:
/// an allocation of exactly its size without guard areas.
class GuardedMemory {
 public:
  /// `alignment`: of an allocation without guard areas, which ends as close behind the bytes as it allows.
  GuardedMemory(Backend& backend, std::uint64_t bytes, std::uint64_t alignment = 16);
  std::byte* data() const { return memory_.span().data() + guard_bytes_; }
  std::span<std::byte> span() const { return {data(), static_cast<std::size_t>(bytes_)}; }
  std::uint64_t bytes() const { return bytes_; }
  /// Overwrites the first bytes with those of the host.
  void load(const void* host, std::uint64_t bytes) const;
  void fill(unsigned char value) const;
  Bytes read(std::uint64_t bytes) const;
  /// Whether nobody wrote into a guard area.
  bool intact() const;

 private:
  Backend& backend_;
  std::uint64_t bytes_, guard_bytes_;
  Workspace memory_;
};

/// Whether workspaces and outputs keep what an allocation leaves in them: nothing of them counts as written before a
/// kernel writes it, which initcheck needs. Without it they are poisoned. Set before the first test.
bool& fresh_workspaces();

/// A plan, its packed weights and a guarded workspace of exactly the plan's size; every kernel loaded unless `cold`.
class GpuLayer {
 public:
  GpuLayer(Backend& backend, const Caps& caps, const StackedExperts& experts, bool cold = false);
  /// With a plan of the caller's own, as for a device of fewer multiprocessors.
  GpuLayer(Backend& backend, Plan plan, const StackedExperts& experts, bool cold = false);
  Backend& backend() const { return backend_; }
  const Plan& plan() const { return plan_; }
  const ExpertWeights& weights() const { return weights_; }
  const GuardedMemory& workspace() const { return workspace_; }

 private:
  Backend& backend_;
  Plan plan_;
  ExpertWeights weights_;
  GuardedMemory workspace_;
};

/// The tensors of calls to one layer in guarded memory.
class GpuCall {
 public:
  /// Room for the rows of `inputs`, loaded with them. `layer` must outlive it.
  GpuCall(const GpuLayer& layer, const MoeTensors& inputs);
  /// The same with a workspace of somebody else's.
  GpuCall(const GpuLayer& layer, const MoeTensors& inputs, const GuardedMemory& workspace);
  /// Other rows into the same memory, at most as many as at first. `inputs` must live until the last untouched().
  void load(const MoeTensors& inputs);
  std::int64_t tokens() const { return inputs_.x.shape[0]; }
  Binding bind(Stream stream) const;
  /// Poisons output and workspace; no result may depend on either.
  void poison(unsigned char value = 0xff) const;
  /// Poisons, runs once on the backend's own stream, waits. The output.
  Bytes run(unsigned char poison_value = 0xff) const;
  /// Reads the output.
  Bytes out() const;
  /// Ids counted as out of range since the last poison().
  std::uint32_t invalid_ids() const;
  /// Whether all guard areas are whole and the inputs are as loaded.
  testing::AssertionResult untouched() const;
  const GpuLayer& layer() const { return layer_; }

 private:
  const GpuLayer& layer_;
  const GuardedMemory& workspace_;
  MoeTensors inputs_;  // on the host
  GuardedMemory x_, ids_, weights_, map_, out_, counter_;
};

/// Success when the call gives the same bits with a zeroed and a poisoned workspace, these fit the double-precision
/// reference in every element, the ids out of range are counted, and nothing else is written.
testing::AssertionResult call_fits(const GpuLayer& layer, const StackedExperts& experts, const MoeTensors& inputs);

/// The same for a call that is too long for the reference: every element is finite, and `rows` of its rows, spread from
/// the first to the last, fit the reference.
testing::AssertionResult samples_fit(const GpuLayer& layer, const StackedExperts& experts, const MoeTensors& inputs,
                                     std::int64_t rows);

/// `count` row numbers from 0 to tokens - 1, both of them among these, ascending; all when there are fewer. Pure.
std::vector<std::int64_t> spread_rows(std::int64_t tokens, std::int64_t count);
/// Those rows of a call, copied.
class RowsOfCall {
 public:
  RowsOfCall(const MoeTensors& inputs, const std::vector<std::int64_t>& rows);
  const MoeTensors& tensors() const { return tensors_; }
  /// The same rows of an output [T, ...] of the whole call.
  Bytes of_output(const Bytes& out) const;

 private:
  std::vector<std::int64_t> rows_;
  std::int64_t tokens_ = 0;
  Bytes x_, ids_, weights_;
  MoeTensors tensors_;
};

/// Random experts and tokens for `problem`'s largest count, through call_fits.
testing::AssertionResult problem_fits(Backend& backend, std::string_view problem, std::uint64_t seed,
                                      const RandomCallOptions& options = {});

/// A captured run made ready for launches.
struct Recording {
  cuda::Graph graph;
  cuda::GraphExec exec;
};
/// Binds and runs `call` once under capture of `stream`, and counts what CallsInCapture counts.
Recording record(const GpuCall& call, const cuda::Stream& stream,
                 cuda::CaptureMode mode = cuda::CaptureMode::thread_local_mode);
/// Poisons, launches, waits. The output.
Bytes replay(const Recording& recording, const GpuCall& call, const cuda::Stream& stream,
             unsigned char poison_value = 0xff);

/// Free bytes of the device, as the driver tells.
std::uint64_t free_bytes(const cuda::Context& context);

}  // namespace fourfold::gpu_test
