// Implements the backend seam on one GPU: its context, one stream, memory, kernels.
#include "cuda/cuda_backend.h"

#include "core/check.h"
#include "core/log.h"
#include "cuda/capture_guard.h"
#include "cuda/device.h"
#include "cuda/device_experts.h"
#include "cuda/handles.h"
#include "cuda/plan_kernels.h"
#include "cuda/run_moe.h"
#include "plan/problem.h"

namespace fourfold::cuda {
namespace {

const char* family_name(CudaFamily family) { return family == CudaFamily::naive ? "naive" : "tensor-core"; }

constexpr std::uintptr_t kActivationAlignment = 16;  // of the copies that bring rows of x

/// Weights of one family of kernels, or in the code order of one activation dtype, serve no other.
void check_serves(const CudaExperts& experts, const PlanData& plan) {
  check(experts.family() == plan.cuda_family, ErrorCode::usage,
        "bind: the weights were packed for {} kernels, the plan has {} ones; call prepare_weights with this plan",
        family_name(experts.family()), family_name(plan.cuda_family));
  const bool has_order = plan.cuda_family == CudaFamily::tiles && plan.caps.format.format != WeightFormat::int4;
  check(!has_order || experts.caps().activation_dtype == plan.caps.activation_dtype, ErrorCode::usage,
        "bind: the weights were packed for {} activations, the plan has {}; call prepare_weights with this plan",
        dtype_text(experts.caps().activation_dtype), dtype_text(plan.caps.activation_dtype));
}

class CudaInterface final : public BackendInterface {
 public:
  CudaInterface(ContextRef context, const DeviceReport& report, ImageStoreOptions kernels, bool poison_workspace)
      : context_(std::move(context)),
        device_(report.device),
        stream_(Stream::create(context_)),
        kernels_(context_, device_.arch, std::move(kernels)),
        poison_workspace_(poison_workspace) {}

  const Device& device() const noexcept override { return device_; }

  std::byte* allocate(std::uint64_t bytes) override {
    const ScopedRelaxedCapture relaxed(context_->driver());
    return reinterpret_cast<std::byte*>(DeviceMemory::allocate(context_, bytes).detach());
  }
  void release(std::byte* data, std::uint64_t bytes) noexcept override { DeviceMemory::adopt(context_, data, bytes); }

  std::shared_ptr<const PackedExperts> pack_experts(const Plan& plan, ExpertSource& source) override {
    return std::make_shared<const DeviceExperts>(*plan.data(), source, context_);
  }

  void warm_up(const Plan& plan) override { kernels_.warm_up(plan.data()); }
  void resolve(BoundMoe& bound) override {
    const auto* experts = dynamic_cast<const DeviceExperts*>(bound.weights.get());
    check(experts != nullptr && experts->ordinal() == context_->ordinal(), ErrorCode::usage,
          "bind: the weights were packed by the backend of another device, and this one is cuda:{}; call "
          "prepare_weights with this backend",
          context_->ordinal());
    check_serves(*experts, *bound.plan);
    if (bound.plan->cuda_family == CudaFamily::tiles)
      check(reinterpret_cast<std::uintptr_t>(bound.x) % kActivationAlignment == 0, ErrorCode::usage,
            "bind: x is at address {:#x}, which is not a multiple of {}; align its base",
            reinterpret_cast<std::uintptr_t>(bound.x), kActivationAlignment);
    bound.kernels = kernels_.resolve(bound.plan, static_cast<CUstream>(bound.stream.handle), bound.tokens);
  }
  void run_moe(const BoundMoe& bound) override {
    if (poison_workspace_)
      cuda::fill(*context_, static_cast<CUstream>(bound.stream.handle), {bound.workspace, bound.plan->workspace_bytes},
                 kPoison);
    cuda::run_moe(bound);
  }
  void freeze() noexcept override { kernels_.freeze(); }
  KernelCounters kernel_counters() const override { return kernels_.counters(); }

  fourfold::Stream stream() noexcept override { return {stream_.value()}; }
  void synchronize(fourfold::Stream stream) override {
    const auto handle = static_cast<CUstream>(stream.handle);
    const ContextGuard current(*context_);
    refuse_if_captured("synchronize", "the stream", handle);
    const ScopedRelaxedCapture relaxed(context_->driver());
    context_->driver().call(context_->driver().stream_synchronize, context_->ordinal(), handle);
  }
  void copy_to_device(std::byte* device, const void* host, std::uint64_t bytes) override {
    blocking("copy_to_device", [&] {
      cuda::copy_to_device(*context_, stream_.value(), device, {static_cast<const std::byte*>(host), bytes});
    });
  }
  void copy_to_host(void* host, const std::byte* device, std::uint64_t bytes) override {
    blocking("copy_to_host", [&] {
      cuda::copy_to_host(*context_, stream_.value(), {static_cast<std::byte*>(host), bytes}, device);
    });
  }
  void fill(std::byte* device, unsigned char value, std::uint64_t bytes) override {
    blocking("fill", [&] { cuda::fill(*context_, stream_.value(), {device, bytes}, value); });
  }

  Ops& ops() override {
    fail(ErrorCode::unsupported, "device \"{}\": whole models run on the CPU only; use --device cpu", device_.name);
  }
  Probes probe() override {
    fail(ErrorCode::unsupported,
         "device \"{}\": there are no probes for a GPU; time a problem with GpuBenchmark (fourfold bench moe)",
         device_.name);
  }

 private:
  /// Before the driver does: it would invalidate the capture.
  void refuse_if_captured(const char* call, const char* which, CUstream stream) const {
    const CaptureState state = capture_state(context_->driver(), context_->ordinal(), stream);
    check(state == CaptureState::none, ErrorCode::usage,
          "{}: {} is captured ({}); end the capture first, or capture another stream", call, which,
          capture_state_name(state));
  }
  /// Enqueues on the backend's stream and waits, also while other streams are captured.
  template <class Enqueue>
  void blocking(const char* call, const Enqueue& enqueue) {
    refuse_if_captured(call, "the backend's own stream", stream_.value());
    const ScopedRelaxedCapture relaxed(context_->driver());
    enqueue();
    stream_.synchronize();
  }

  ContextRef context_;
  Device device_;
  Stream stream_;
  PlanKernels kernels_;
  bool poison_workspace_;
};

}  // namespace

std::unique_ptr<BackendInterface> make_cuda_interface(std::shared_ptr<const DriverApi> driver, int ordinal,
                                                      ImageStoreOptions kernels, bool poison_workspace,
                                                      bool naive_kernels) {
  DeviceReport report = read_device(*driver, ordinal);
  report.device.naive_kernels = naive_kernels;
  // A context is created and a stream made. `driver` is not moved away: when either fails, it restores the mode.
  const ScopedRelaxedCapture relaxed(*driver);
  return std::make_unique<CudaInterface>(Context::retain(driver, ordinal), report, std::move(kernels),
                                         poison_workspace);
}

}  // namespace fourfold::cuda

namespace fourfold {

std::shared_ptr<Backend> cuda_backend(int ordinal, const Settings& settings) {
  configure_log_once(settings);
  return std::make_shared<Backend>(
      cuda::make_cuda_interface(cuda::DriverApi::open(), ordinal, cuda::image_store_options(settings),
                                settings.poison_workspace));
}

}  // namespace fourfold
