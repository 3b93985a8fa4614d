// Inputs in device memory, bindings, captures.
#include "benchmark/layer_graphs.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"
#include "plan/plan_data.h"

namespace fourfold::benchmark {
namespace {

constexpr std::uint64_t kInputSeed = 2;    // x, and the routes of the fixed call
constexpr std::uint64_t kRoutingSeed = 3;  // routes of the timed calls
constexpr std::array<const char*, 4> kStageNames{"routing", "gate_up", "down", "combine"};

int stage_of(CudaKernel kernel) {
  switch (kernel) {
    case CudaKernel::route_resolve:
    case CudaKernel::route_sort:
    case CudaKernel::route_tiles:
      return 0;
    case CudaKernel::gate_up_naive:
    case CudaKernel::gate_up_tiles:
      return 1;
    case CudaKernel::down_naive:
    case CudaKernel::down_sums:
    case CudaKernel::down_rows:
      return 2;
    case CudaKernel::combine_rows:
      return 3;
  }
  return 0;
}

std::size_t element_bytes(const Caps& caps) { return static_cast<std::size_t>(dtype_bits(caps.activation_dtype)) / 8; }

/// Elements of random sign with magnitudes in [0.5, 1). Large tensors repeat: a tensor core does not care.
std::vector<std::byte> random_activations(const Caps& caps) {
  constexpr std::int64_t kDistinct = 1 << 20;
  const std::int64_t elements = checked_mul(caps.max_tokens, caps.hidden, "x of the benchmark");
  const std::int64_t distinct = std::min(elements, kDistinct);
  const bool f16 = caps.activation_dtype == DType::f16;
  std::mt19937_64 random(kInputSeed);
  std::vector<std::byte> x(static_cast<std::size_t>(elements) * element_bytes(caps));
  auto* const values = reinterpret_cast<std::uint16_t*>(x.data());
  for (std::int64_t i = 0; i < distinct; ++i) {
    const std::uint64_t bits = random();
    values[i] = static_cast<std::uint16_t>(f16 ? (bits & 0x83ffu) | 0x3800u : (bits & 0x807fu) | 0x3f00u);
  }
  for (std::int64_t i = distinct; i < elements; i += distinct)
    std::copy_n(values, std::min(distinct, elements - i), values + i);
  return x;
}

/// An exponent of all ones is an infinity or a NaN.
std::int64_t count_not_finite(const std::vector<std::uint16_t>& values, DType dtype) {
  const std::uint16_t exponent = dtype == DType::f16 ? 0x7c00 : 0x7f80;
  return std::count_if(values.begin(), values.end(),
                       [exponent](std::uint16_t value) { return (value & exponent) == exponent; });
}

Workspace on_device(Backend& backend, const void* host, std::size_t bytes) {
  Workspace memory = Workspace::allocate(std::max<std::size_t>(bytes, 1), backend);
  if (bytes > 0) copy_to_device(backend, memory.span().first(bytes), {static_cast<const std::byte*>(host), bytes});
  return memory;
}

}  // namespace

Plan plan_up_to(const Plan& plan, int stage) {
  auto data = std::make_shared<PlanData>(*plan.data());
  for (CudaBand& band : data->cuda_bands)
    std::erase_if(band.launches, [stage](const CudaLaunch& launch) { return stage_of(launch.kernel) > stage; });
  return Plan(std::move(data));
}

LayerGraphs::LayerGraphs(const CallPlace& place, const BenchmarkCase& subject, const Plan& plan, int calls)
    : place_(place),
      subject_(subject),
      plan_(plan),
      calls_(calls),
      x_([&] {
        const std::vector<std::byte> x = random_activations(subject.caps);
        return on_device(place.backend, x.data(), x.size());
      }()),
      out_(Workspace::allocate(x_.span().size(), place.backend)),
      ids_(Workspace::allocate(1, place.backend)),
      weights_(Workspace::allocate(1, place.backend)),
      map_([&] {
        const std::vector<std::int32_t> map = first_rank_map(subject.caps);
        return on_device(place.backend, map.data(), map.size() * sizeof(std::int32_t));
      }()),
      workspace_(Workspace::allocate(plan, place.backend)) {
  std::mt19937_64 random(kRoutingSeed), fixed(kInputSeed);
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  for (int call = 0; call <= calls_; ++call) {
    const Routes routes = draw_routes(subject_.caps, subject_.routing, call < calls_ ? random : fixed);
    ids.insert(ids.end(), routes.ids.begin(), routes.ids.end());
    weights.insert(weights.end(), routes.weights.begin(), routes.weights.end());
    if (call == calls_) break;
    const Touched touched = touched_by(subject_.caps, routes.ids);
    experts_hit_ += static_cast<double>(touched.experts);
    routes_ += static_cast<double>(touched.routes);
  }
  experts_hit_ /= calls_;
  routes_ /= calls_;
  ids_ = on_device(place_.backend, ids.data(), ids.size() * sizeof(std::int32_t));
  weights_ = on_device(place_.backend, weights.data(), weights.size() * sizeof(float));
  fill(place_.backend, out_.span(), 0);
  warm_up(plan_, place_.backend);
}

int LayerGraphs::slices() const noexcept {
  return static_cast<int>(ceil_div(subject_.caps.max_tokens, std::max<std::int64_t>(1, plan_.caps().max_tokens)));
}

MoeTensors LayerGraphs::tensors(int call) const {
  const Caps& caps = subject_.caps;
  const std::int64_t tokens = caps.max_tokens;
  const auto first = static_cast<std::size_t>(call) * static_cast<std::size_t>(tokens * caps.top_k);
  MoeTensors t;
  t.weights = &place_.weights[static_cast<std::size_t>(call == calls_ ? 0 : call) % place_.weights.size()];
  t.x = ConstTensorView(x_.span().data(), caps.activation_dtype, {tokens, caps.hidden});
  t.topk_ids = ConstTensorView(ids_.span().data() + first * sizeof(std::int32_t), DType::i32, {tokens, caps.top_k});
  t.topk_weights = ConstTensorView(weights_.span().data() + first * sizeof(float), DType::f32, {tokens, caps.top_k});
  t.out = TensorView(out_.span().data(), caps.activation_dtype, {tokens, caps.hidden});
  if (caps.global_experts > 0) t.expert_map = ConstTensorView(map_.span().data(), DType::i32, {caps.global_experts});
  return t;
}

std::vector<Binding> LayerGraphs::bind(const Plan& plan, int call) const {
  return bind_sliced(plan, place_.backend, tensors(call), workspace_.span(), fourfold::Stream{place_.stream});
}

cuda::GraphExec LayerGraphs::capture(const Plan& plan) const {
  warm_up(plan, place_.backend);
  std::vector<Binding> bindings;
  for (int call = 0; call < calls_; ++call)
    for (Binding& binding : bind(plan, call)) bindings.push_back(std::move(binding));
  cuda::ScopedCapture recording(place_.context, place_.stream, cuda::CaptureMode::thread_local_mode);
  for (const Binding& binding : bindings) run(binding);
  return recording.end().instantiate();
}

std::vector<StageGraph> LayerGraphs::record() const {
  std::array<bool, kStageNames.size()> has_launches{};
  const auto band = static_cast<std::size_t>(
      &plan_.band_for(std::min(subject_.caps.max_tokens, plan_.caps().max_tokens)) - plan_.bands().data());
  for (const CudaLaunch& launch : plan_.data()->cuda_bands[band].launches)
    has_launches[static_cast<std::size_t>(stage_of(launch.kernel))] = true;
  std::vector<StageGraph> graphs;
  for (std::size_t stage = 0; stage < kStageNames.size(); ++stage)
    if (has_launches[stage])
      graphs.push_back({kStageNames[stage], capture(plan_up_to(plan_, static_cast<int>(stage)))});
  return graphs;
}

std::uint64_t LayerGraphs::output_hash() const {
  const fourfold::Stream stream{place_.stream};
  for (const Binding& binding : bind(plan_, calls_)) run(binding);
  synchronize(place_.backend, stream);
  std::vector<std::uint16_t> out(out_.span().size() / sizeof(std::uint16_t));
  copy_to_host(place_.backend, std::as_writable_bytes(std::span(out)), out_.span());
  const std::int64_t bad = count_not_finite(out, subject_.caps.activation_dtype);
  check(
      bad == 0, ErrorCode::mismatch,
      "{} of the {} values of a call with ordinary inputs are not finite: the kernels are wrong, and their speed says "
      "nothing; run fourfold verify",
      bad, out.size());
  return XXH3_64bits(out.data(), out.size() * sizeof(std::uint16_t));
}

}  // namespace fourfold::benchmark
