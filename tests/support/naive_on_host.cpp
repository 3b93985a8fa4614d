// Packing, arguments and launches of the naive kernels in host memory.
#include "support/naive_on_host.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "cuda/moe_params.h"
#include "cuda/pack_experts.h"
#include "plan/cuda_naive_plan.h"
#include "plan/plan_data.h"
#include "support/cuda_on_host.h"
#include "support/host_backend.h"

// The entries are compiled for one instance; the other instances are those of the templates that they call.
#define FORMAT nvfp4
#define DTYPE bf16
#define ACTIVATION silu
#include "kernels/moe/down_naive.cu"
#include "kernels/moe/gate_up_naive.cu"
#include "kernels/moe/route_resolve.cu"
#include "kernels/moe/route_sort.cu"
#undef ACTIVATION
#undef DTYPE
#undef FORMAT

namespace support {
namespace {

namespace k = fourfold::kernels;
using namespace fourfold;

/// The kernels' weight layout in host memory.
class HostExperts final : public cuda::CudaExperts {
 public:
  HostExperts(const Caps& caps, ExpertSource& source) : CudaExperts(caps) {
    std::vector<std::byte> staging;
    const cuda::PackTarget target{
        [&](std::uint64_t layer_bytes, std::uint64_t expert_bytes) {
          bytes_.assign(layer_bytes, std::byte{0xa5});
          staging.assign(expert_bytes, std::byte{0x5a});
          return std::span(staging);
        },
        [&](std::uint64_t offset, std::span<const std::byte> piece) {
          std::memcpy(bytes_.data() + offset, piece.data(), piece.size());
        },
        [&] { std::fill(staging.begin(), staging.end(), std::byte{0x5a}); }};
    const cuda::PackedLayer layer = cuda::pack_layer(caps, source, target);
    set_layer(layer, bytes_.data());
  }

 private:
  std::vector<std::byte> bytes_;
};

template <k::Format kFormat, k::Float16 kFloat>
auto gate_up_of(ActivationKind kind) -> void (*)(const k::GateUpParams&) {
  switch (kind) {
    case ActivationKind::silu:
      // The one instance whose entry is compiled.
      if constexpr (kFormat == k::Format::nvfp4 && kFloat == k::Float16::bf16)
        return [](const k::GateUpParams& p) { gate_up_naive(p); };
      else
        return &k::gate_up<kFormat, kFloat, k::Activation::silu>;
    case ActivationKind::swiglu_oai:
      return &k::gate_up<kFormat, kFloat, k::Activation::swiglu_oai>;
    case ActivationKind::situ:
      return &k::gate_up<kFormat, kFloat, k::Activation::situ>;
    case ActivationKind::gelu_tanh:
      return &k::gate_up<kFormat, kFloat, k::Activation::gelu_tanh>;
    case ActivationKind::relu2:
      break;
  }
  return &k::gate_up<kFormat, kFloat, k::Activation::relu2>;
}

struct Kernels {
  void (*gate_up)(const k::GateUpParams&);
  void (*down)(const k::DownParams&);
};

template <k::Format kFormat>
Kernels kernels_of_format(const Caps& caps) {
  if (caps.activation_dtype == DType::f16)
    return {gate_up_of<kFormat, k::Float16::f16>(caps.activation.kind), &k::down<kFormat, k::Float16::f16>};
  return {gate_up_of<kFormat, k::Float16::bf16>(caps.activation.kind), &k::down<kFormat, k::Float16::bf16>};
}

Kernels kernels_of(const Caps& caps) {
  switch (caps.format.format) {
    case WeightFormat::nvfp4:
      return kernels_of_format<k::Format::nvfp4>(caps);
    case WeightFormat::mxfp4:
      return kernels_of_format<k::Format::mxfp4>(caps);
    case WeightFormat::int4:
    case WeightFormat::exl3:
      break;
  }
  return caps.format.zero_points ? kernels_of_format<k::Format::int4_zp>(caps)
                                 : kernels_of_format<k::Format::int4>(caps);
}

/// One call: the arguments of its four launches.
class Call {
 public:
  Call(const BoundMoe& bound, ThreadOrder order)
      : bound_(bound),
        plan_(*bound.plan),
        caps_(plan_.caps),
        order_(order) {}

  void run() {
    if (bound_.tokens == 0) return;
    step(kCudaRouteResolve, route_resolve, cuda::route_resolve_params(bound_));
    step(kCudaRouteSort, route_sort, cuda::route_sort_params(bound_));
    const Kernels kernels = kernels_of(caps_);
    step(kCudaGateUp, kernels.gate_up, cuda::gate_up_params(bound_));
    step(kCudaDown, kernels.down, cuda::down_params(bound_));
  }

 private:
  template <class Kernel, class Params>
  void step(CudaNaiveStep step, Kernel kernel, const Params& params) {
    for (const Segment& segment : plan_.segments)
      if (segment.first_step == step) std::memset(bound_.workspace + segment.offset_bytes, 0xa5, segment.bytes);
    const CudaGrid grid = cuda_grid(caps_, plan_.cuda_bands[0].launches[static_cast<std::size_t>(step)], bound_.tokens);
    play_launch(kernel, params, grid.x, grid.y, plan_.kernel_specs[static_cast<std::size_t>(step)].block_threads,
                order_);
    for (const Segment& segment : plan_.segments)
      if (segment.last_step == step) std::memset(bound_.workspace + segment.offset_bytes, 0x5a, segment.bytes);
  }

  const BoundMoe& bound_;
  const PlanData& plan_;
  const Caps& caps_;
  ThreadOrder order_;
};

Device naive_h200() {
  Device device = device_preset("h200");
  device.naive_kernels = true;
  return device;
}

class NaiveOnHost final : public HostBackend {
 public:
  explicit NaiveOnHost(ThreadOrder order) : HostBackend(naive_h200()), order_(order) {}
  std::shared_ptr<const PackedExperts> pack_experts(const Plan& plan, ExpertSource& source) override {
    return std::make_shared<const HostExperts>(plan.caps(), source);
  }
  void run_moe(const BoundMoe& bound) override { Call(bound, order_).run(); }

 private:
  ThreadOrder order_;
};

}  // namespace

std::shared_ptr<Backend> naive_on_host(ThreadOrder order) {
  return std::make_shared<Backend>(std::make_unique<NaiveOnHost>(order));
}

}  // namespace support
