// Implements the backend seam on the CPU. Holds no mutable state, so every member is thread-safe.
#include "cpu/cpu_backend.h"

#include <cstdlib>
#include <cstring>

#include "core/check.h"
#include "core/log.h"
#include "cpu/isa.h"
#include "cpu/ops_cpu.h"
#include "cpu/probe.h"
#include "cpu/repack.h"
#include "cpu/run_moe.h"
#include "plan/arena.h"
#include "plan/cpu_plan.h"
#include "plan/plan_data.h"

namespace fourfold::cpu {
namespace {

class CpuInterface final : public BackendInterface {
 public:
  explicit CpuInterface(const Settings& settings)
      : device_(cpu_device(settings)), ops_(make_cpu_ops(device_)), poison_workspace_(settings.poison_workspace) {}

  const Device& device() const noexcept override { return device_; }

  std::byte* allocate(std::uint64_t bytes) override {
    const std::uint64_t rounded = (bytes + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
    void* const data = rounded < bytes ? nullptr : std::aligned_alloc(kSegmentAlignment, rounded);
    check(data != nullptr, ErrorCode::unavailable, "allocate: no memory for {} bytes on the CPU; ask for less", bytes);
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::uint64_t) noexcept override { std::free(data); }

  std::shared_ptr<const PackedExperts> pack_experts(const Plan& plan, ExpertSource& source) override {
    return std::make_shared<const PackedCpuExperts>(plan.caps(), source, device_.threads);
  }

  void warm_up(const Plan& plan) override { check_isa(*plan.data()); }  // kernels are linked in: nothing to load

  void resolve(BoundMoe&) override {}
  void freeze() noexcept override {}
  KernelCounters kernel_counters() const override { return {}; }

  void run_moe(const BoundMoe& bound) override {
    check_isa(*bound.plan);
    if (poison_workspace_ && bound.workspace != nullptr)
      std::memset(bound.workspace, kPoison, bound.plan->workspace_bytes);
    cpu::run_moe(bound, micro_kernels(bound.plan->device.isa, cpu_bf16_dot(bound.plan->caps, bound.plan->device)));
  }

  Stream stream() noexcept override { return {}; }
  void synchronize(Stream) override {}  // run returns when the work is done
  void copy_to_device(std::byte* device, const void* host, std::uint64_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void copy_to_host(void* host, const std::byte* device, std::uint64_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void fill(std::byte* device, unsigned char value, std::uint64_t bytes) override { std::memset(device, value, bytes); }

  Ops& ops() override { return *ops_; }
  Probes probe() override { return measure(device_); }

 private:
  /// A plan for a wider instruction set must not reach instructions that this machine lacks.
  void check_isa(const PlanData& plan) const {
    check(plan.device.isa <= device_.isa, ErrorCode::unavailable,
          "the plan is for {}, this backend has {} ({}); plan for backend.device()", cpu_isa_name(plan.device.isa),
          cpu_isa_name(device_.isa), device_.isa_fallback_reason);
  }

  Device device_;
  std::unique_ptr<Ops> ops_;
  bool poison_workspace_;
};

}  // namespace

const MicroKernels& micro_kernels(CpuIsa isa, bool bf16_dot) noexcept {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::avx512_bf16:
      return bf16_dot ? micro_kernels_avx512_bf16() : micro_kernels_avx512();
    case CpuIsa::avx512:
      return micro_kernels_avx512();
    case CpuIsa::avx2:
      return micro_kernels_avx2();
    case CpuIsa::portable:
      break;
  }
#else
  (void)isa;
  (void)bf16_dot;
#endif
  return micro_kernels_portable();
}

std::unique_ptr<BackendInterface> make_cpu_interface(const Settings& settings) {
  return std::make_unique<CpuInterface>(settings);
}

}  // namespace fourfold::cpu

namespace fourfold {

std::shared_ptr<Backend> cpu_backend(const Settings& settings) {
  configure_log_once(settings);
  return std::make_shared<Backend>(cpu::make_cpu_interface(settings));
}

}  // namespace fourfold
