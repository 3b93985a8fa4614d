// The seam between the facade (src/moe, src/model) and a device: what every backend implements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fourfold/backend.h"
#include "fourfold/moe.h"

namespace fourfold {

class Ops;  // src/backend/ops.h: the dense operations of a decoder

/// A layer's experts in a backend's own layout. Immutable after packing.
class PackedExperts {
 public:
  virtual ~PackedExperts() = default;
  /// Of the packed layout, padding included.
  virtual std::uint64_t bytes() const noexcept = 0;
  /// The caps it was packed for (weights of two plans are interchangeable when same_layout says so).
  const Caps& caps() const noexcept { return caps_; }

 protected:
  explicit PackedExperts(const Caps& caps) : caps_(caps) {}

 private:
  Caps caps_;
};

/// True when weights packed for `a` serve a plan of `b`: same experts, sizes, format, gating and biases.
/// Token capacity, top_k, activation details and dtype do not matter.
bool same_layout(const Caps& a, const Caps& b) noexcept;

/// Byte that Settings::poison_workspace fills workspaces with: NaN in fp32, bf16 and fp16, -1 as an integer.
inline constexpr unsigned char kPoison = 0xff;

/// What a backend's resolve() leaves in a bound call for its run_moe(): kernels ready to launch. Immutable.
class BoundKernels {
 public:
  virtual ~BoundKernels() = default;

 protected:
  BoundKernels() = default;
};

/// A checked call: everything run() needs, no ownership of tensor data.
struct BoundMoe {
  std::shared_ptr<const PlanData> plan;
  std::shared_ptr<const PackedExperts> weights;
  BackendInterface* backend = nullptr;
  const Band* band = nullptr;        // null when tokens == 0
  std::int64_t tokens = 0;           // T
  const void* x = nullptr;           // [T, H] activation dtype
  const void* topk_ids = nullptr;    // [T, k] i32 or i64
  bool ids_are_64_bit = false;
  const float* topk_weights = nullptr;     // [T, k]
  void* out = nullptr;                     // [T, H] activation dtype
  const std::int32_t* expert_map = nullptr;  // [global_experts] or null
  std::uint32_t* invalid_ids = nullptr;
  std::byte* workspace = nullptr;    // 256-aligned, plan->workspace_bytes
  Stream stream;
  std::shared_ptr<const BoundKernels> kernels;  // null where kernels are linked in, and when tokens == 0
};

/// One device. Implementations are thread-safe; run_moe may be called from several threads with different
/// workspaces.
class BackendInterface {
 public:
  virtual ~BackendInterface() = default;
  virtual const Device& device() const noexcept = 0;
  /// Device memory, base aligned to 256. Throws unavailable with bytes asked and free.
  virtual std::byte* allocate(std::uint64_t bytes) = 0;
  /// Frees what allocate(bytes) returned.
  virtual void release(std::byte* data, std::uint64_t bytes) noexcept = 0;
  /// As prepare_weights, for a source whose experts were checked.
  virtual std::shared_ptr<const PackedExperts> pack_experts(const Plan& plan, ExpertSource& source) = 0;
  /// Resolves every kernel that the plan can launch.
  virtual void warm_up(const Plan& plan) = 0;
  /// The end of bind: fills bound.kernels. Host only; loads what warm_up did not, and refuses to under capture of
  /// bound.stream or after freeze(). Not called when tokens == 0.
  virtual void resolve(BoundMoe& bound) = 0;
  /// Only launches; takes its kernels from bound.kernels.
  virtual void run_moe(const BoundMoe& bound) = 0;
  // As the functions of the same names in fourfold/backend.h.
  virtual void freeze() noexcept = 0;
  virtual KernelCounters kernel_counters() const = 0;
  /// The backend's own; null on the CPU.
  virtual Stream stream() noexcept = 0;
  virtual void synchronize(Stream stream) = 0;
  // Blocking, on stream(); `bytes` > 0.
  virtual void copy_to_device(std::byte* device, const void* host, std::uint64_t bytes) = 0;
  virtual void copy_to_host(void* host, const std::byte* device, std::uint64_t bytes) = 0;
  virtual void fill(std::byte* device, unsigned char value, std::uint64_t bytes) = 0;

  /// The dense operations; throws unsupported where whole models do not run.
  virtual Ops& ops() = 0;
  /// As measure_probes.
  virtual Probes probe() = 0;
};

}  // namespace fourfold
