// Packing, arguments and launches of the naive kernels in host memory.
#include "support/naive_on_host.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "core/float16.h"
#include "plan/arena.h"
#include "plan/cuda_plan.h"
#include "plan/cuda_weight_layout.h"
#include "plan/plan_data.h"
#include "support/cuda_on_host.h"

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

float real(const std::byte* data, DType dtype) {
  float single = 0;
  std::uint16_t half = 0;
  std::memcpy(&half, data, 2);
  if (dtype == DType::bf16) return bf16_to_float(half);
  if (dtype == DType::f16) return f16_to_float(half);
  std::memcpy(&single, data, 4);
  return single;
}

/// The kernels' weight layout, filled expert by expert.
class HostExperts final : public PackedExperts {
 public:
  HostExperts(const Caps& caps, ExpertSource& source) : PackedExperts(caps) {
    for (std::int64_t expert = 0; expert < caps.experts; ++expert) {
      const ExpertMatrices matrices = source.expert(expert);
      if (expert == 0) lay_out(matrices);
      const std::int64_t up_row = caps.activation.gated() ? caps.intermediate : 0;
      if (up_row > 0) pack(layout_.gate_up, expert, 0, 0, caps.intermediate, matrices.gate);
      pack(layout_.gate_up, expert, up_row, up_row > 0 ? 1 : 0, caps.intermediate, matrices.up);
      pack(layout_.down, expert, 0, 0, caps.hidden, matrices.down);
    }
  }

  std::uint64_t bytes() const noexcept override { return bytes_.size(); }

  k::MatrixParams params(bool down) const {
    const CudaMatrixLayout& layout = down ? layout_.down : layout_.gate_up;
    k::MatrixParams m{};
    m.codes = reinterpret_cast<const k::UInt8*>(at(layout.codes));
    m.scales = at(layout.scales);
    m.zeros = reinterpret_cast<const k::UInt8*>(at(layout.zeros));
    m.global = reinterpret_cast<const float*>(at(layout.global));
    m.bias = reinterpret_cast<const float*>(at(layout.bias));
    m.codes_row_bytes = layout.codes_row_bytes();
    m.codes_expert_bytes = layout.rows * m.codes_row_bytes;
    m.scales_row_bytes = layout.scales_row_bytes();
    m.scales_expert_bytes = layout.rows * m.scales_row_bytes;
    m.zeros_row_bytes = layout.groups;
    m.zeros_expert_bytes = layout.rows * layout.groups;
    m.global_expert_floats = layout.parts;
    m.bias_expert_floats = layout.rows;
    m.reduction = static_cast<k::Int32>(layout.k);
    m.group_size = static_cast<k::Int32>(layout.group_size);
    m.scale_type = down ? down_type_ : gate_up_type_;
    return m;
  }

 private:
  const std::byte* at(std::int64_t offset) const { return offset < 0 ? nullptr : bytes_.data() + offset; }

  static k::ScaleType scale_type(DType dtype) {
    return dtype == DType::f32 ? k::ScaleType::f32 : dtype == DType::f16 ? k::ScaleType::f16 : k::ScaleType::bf16;
  }

  void lay_out(const ExpertMatrices& first) {
    gate_up_type_ = scale_type(first.up.scale_dtype);
    down_type_ = scale_type(first.down.scale_dtype);
    layout_ =
        cuda_weight_layout(caps(), {dtype_bits(first.up.scale_dtype) / 8, dtype_bits(first.down.scale_dtype) / 8});
    bytes_.assign(static_cast<std::size_t>(layout_.total_bytes), std::byte{0xa5});
  }

  void pack(const CudaMatrixLayout& layout, std::int64_t expert, std::int64_t first_row, std::int64_t part,
            std::int64_t rows, const MatrixSource& source) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t line = expert * layout.rows + first_row + row;
      const auto copy = [&](std::int64_t section, std::int64_t row_bytes, const void* from, std::int64_t stride) {
        if (section >= 0)
          std::memcpy(bytes_.data() + section + line * row_bytes, static_cast<const std::byte*>(from) + row * stride,
                      static_cast<std::size_t>(row_bytes));
      };
      copy(layout.codes, layout.codes_row_bytes(), source.codes, source.codes_row_bytes);
      copy(layout.scales, layout.scales_row_bytes(), source.scales, source.scales_row_bytes);
      copy(layout.zeros, layout.groups, source.zeros, source.zeros_row_bytes);
      if (layout.bias < 0) continue;
      const auto* bias = static_cast<const std::byte*>(source.bias) + row * source.bias_stride_bytes;
      const float value = real(bias, source.bias_dtype);
      std::memcpy(bytes_.data() + layout.bias + line * 4, &value, 4);
    }
    if (layout.global >= 0)
      std::memcpy(bytes_.data() + layout.global + (expert * layout.parts + part) * 4, &source.global_scale, 4);
  }

  CudaWeightLayout layout_;
  k::ScaleType gate_up_type_ = k::ScaleType::bf16, down_type_ = k::ScaleType::bf16;
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
        weights_(static_cast<const HostExperts&>(*bound.weights)),
        order_(order) {}

  void run() {
    if (bound_.tokens == 0) return;
    step(kCudaRouteResolve, route_resolve, resolve_params());
    step(kCudaRouteSort, route_sort, sort_params());
    const Kernels kernels = kernels_of(caps_);
    step(kCudaGateUp, kernels.gate_up, gate_up_params());
    step(kCudaDown, kernels.down, down_params());
  }

 private:
  template <class T>
  T* segment(int index) const {
    return reinterpret_cast<T*>(bound_.workspace + plan_.segments[static_cast<std::size_t>(index)].offset_bytes);
  }

  template <class Kernel, class Params>
  void step(CudaStep step, Kernel kernel, const Params& params) {
    for (const Segment& segment : plan_.segments)
      if (segment.first_step == step) std::memset(bound_.workspace + segment.offset_bytes, 0xa5, segment.bytes);
    const CudaGrid grid = cuda_grid(caps_, step, bound_.tokens);
    play_launch(kernel, params, grid.x, grid.y, plan_.kernel_specs[static_cast<std::size_t>(step)].block_threads,
                order_);
    for (const Segment& segment : plan_.segments)
      if (segment.last_step == step) std::memset(bound_.workspace + segment.offset_bytes, 0x5a, segment.bytes);
  }

  k::RouteResolveParams resolve_params() const {
    k::RouteResolveParams p{};
    p.topk_ids = bound_.topk_ids;
    p.expert_map = bound_.expert_map;
    p.invalid_ids = bound_.invalid_ids;
    p.route_expert = segment<k::Int32>(plan_.cuda.route_expert);
    p.routes = bound_.tokens * caps_.top_k;
    p.id_count = caps_.id_count();
    p.experts = static_cast<k::Int32>(caps_.experts);
    p.ids_are_64_bit = bound_.ids_are_64_bit;
    return p;
  }

  k::RouteSortParams sort_params() const {
    k::RouteSortParams p{};
    p.route_expert = segment<k::Int32>(plan_.cuda.route_expert);
    p.expert_offsets = segment<k::Int32>(plan_.cuda.expert_offsets);
    p.sorted_routes = segment<k::Int32>(plan_.cuda.sorted_routes);
    p.routes = bound_.tokens * caps_.top_k;
    p.experts = static_cast<k::Int32>(caps_.experts);
    return p;
  }

  k::GateUpParams gate_up_params() const {
    k::GateUpParams p{};
    p.x = static_cast<const k::UInt16*>(bound_.x);
    p.topk_weights = bound_.topk_weights;
    p.route_expert = segment<k::Int32>(plan_.cuda.route_expert);
    p.expert_offsets = segment<k::Int32>(plan_.cuda.expert_offsets);
    p.sorted_routes = segment<k::Int32>(plan_.cuda.sorted_routes);
    p.activated = segment<k::UInt16>(plan_.cuda.activated);
    p.gate_up = weights_.params(false);
    p.experts = static_cast<k::Int32>(caps_.experts);
    p.top_k = static_cast<k::Int32>(caps_.top_k);
    p.hidden = static_cast<k::Int32>(caps_.hidden);
    p.intermediate = static_cast<k::Int32>(caps_.intermediate);
    p.router_weight_on_input = caps_.router_weight_on_input;
    p.has_limit = caps_.activation.limit.has_value();
    p.limit = caps_.activation.limit.value_or(7.0f);
    p.alpha = caps_.activation.alpha.value_or(1.702f);
    p.beta = caps_.activation.beta.value_or(1.0f);
    return p;
  }

  k::DownParams down_params() const {
    k::DownParams p{};
    p.activated = segment<k::UInt16>(plan_.cuda.activated);
    p.topk_weights = bound_.topk_weights;
    p.route_expert = segment<k::Int32>(plan_.cuda.route_expert);
    p.out = static_cast<k::UInt16*>(bound_.out);
    p.down = weights_.params(true);
    p.tokens = bound_.tokens;
    p.top_k = static_cast<k::Int32>(caps_.top_k);
    p.hidden = static_cast<k::Int32>(caps_.hidden);
    p.intermediate = static_cast<k::Int32>(caps_.intermediate);
    p.router_weight_on_input = caps_.router_weight_on_input;
    return p;
  }

  const BoundMoe& bound_;
  const PlanData& plan_;
  const Caps& caps_;
  const HostExperts& weights_;
  ThreadOrder order_;
};

class NaiveOnHost final : public BackendInterface {
 public:
  explicit NaiveOnHost(ThreadOrder order) : device_(device_preset("h200")), order_(order) {}
  const Device& device() const noexcept override { return device_; }
  std::byte* allocate(std::uint64_t bytes) override {
    return static_cast<std::byte*>(std::aligned_alloc(kSegmentAlignment, round_up(bytes, kSegmentAlignment)));
  }
  void release(std::byte* data, std::uint64_t) noexcept override { std::free(data); }
  std::shared_ptr<const PackedExperts> pack_experts(const Plan& plan, ExpertSource& source) override {
    return std::make_shared<const HostExperts>(plan.caps(), source);
  }
  void warm_up(const Plan&) override {}
  void run_moe(const BoundMoe& bound) override { Call(bound, order_).run(); }
  Ops& ops() override { fail(ErrorCode::unsupported, "played kernels have no dense operations"); }
  Probes probe() override { return {}; }

 private:
  Device device_;
  ThreadOrder order_;
};

}  // namespace

std::shared_ptr<Backend> naive_on_host(ThreadOrder order) {
  return std::make_shared<Backend>(std::make_unique<NaiveOnHost>(order));
}

}  // namespace support
