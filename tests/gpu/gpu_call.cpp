// Moves calls to the GPU, runs them eagerly or through graphs, and looks at what they wrote.
#include "gpu/gpu_call.h"

#include <algorithm>
#include <cstring>

#include "gpu/gpu_device.h"
#include "moe/reference_moe.h"
#include "moe/verify_call.h"

namespace fourfold::gpu_test {
namespace {

constexpr unsigned char kGuardByte = 0xc5;

ExpertWeights pack(const Plan& plan, Backend& backend, const StackedExperts& experts) {
  auto source = stacked_source(experts, plan.caps());
  return prepare_weights(plan, backend, *source);
}

std::uint64_t bytes_of(const ConstTensorView& view) {
  return view.absent() ? 0 : static_cast<std::uint64_t>(view.bytes());
}

ConstTensorView on_device(ConstTensorView view, const GuardedMemory& memory) {
  if (!view.absent()) view.data = memory.data();
  return view;
}

}  // namespace

GuardedMemory::GuardedMemory(Backend& backend, std::uint64_t bytes)
    : backend_(backend), bytes_(bytes), memory_(Workspace::allocate(bytes + 2 * kGuardBytes, backend)) {
  fourfold::fill(backend_, memory_.span(), kGuardByte);
  fill(0xff);
}

void GuardedMemory::load(const void* host, std::uint64_t bytes) const {
  copy_to_device(backend_, span().first(bytes), {static_cast<const std::byte*>(host), static_cast<std::size_t>(bytes)});
}

void GuardedMemory::fill(unsigned char value) const { fourfold::fill(backend_, span(), value); }

Bytes GuardedMemory::read(std::uint64_t bytes) const {
  Bytes host(bytes);
  copy_to_host(backend_, host, span().first(bytes));
  return host;
}

bool GuardedMemory::intact() const {
  const std::span<std::byte> all = memory_.span();
  for (const std::span<std::byte> area : {all.first(kGuardBytes), all.last(kGuardBytes)}) {
    Bytes host(kGuardBytes);
    copy_to_host(backend_, host, area);
    if (host != Bytes(kGuardBytes, std::byte{kGuardByte})) return false;
  }
  return true;
}

GpuLayer::GpuLayer(Backend& backend, const Caps& caps, const StackedExperts& experts, bool cold)
    : backend_(backend),
      plan_(fourfold::plan(caps, backend.device())),
      weights_(pack(plan_, backend, experts)),
      workspace_(backend, plan_.workspace_bytes()) {
  if (!cold) warm_up(plan_, backend);
}

GpuCall::GpuCall(const GpuLayer& layer, const MoeTensors& inputs) : GpuCall(layer, inputs, layer.workspace()) {}

GpuCall::GpuCall(const GpuLayer& layer, const MoeTensors& inputs, const GuardedMemory& workspace)
    : layer_(layer),
      workspace_(workspace),
      x_(layer.backend(), bytes_of(inputs.x)),
      ids_(layer.backend(), bytes_of(inputs.topk_ids)),
      weights_(layer.backend(), bytes_of(inputs.topk_weights)),
      map_(layer.backend(), bytes_of(inputs.expert_map)),
      out_(layer.backend(), bytes_of(inputs.x)),
      counter_(layer.backend(), sizeof(std::uint32_t)) {
  load(inputs);
  poison();
}

void GpuCall::load(const MoeTensors& inputs) {
  inputs_ = inputs;
  x_.load(inputs.x.data, bytes_of(inputs.x));
  ids_.load(inputs.topk_ids.data, bytes_of(inputs.topk_ids));
  weights_.load(inputs.topk_weights.data, bytes_of(inputs.topk_weights));
  map_.load(inputs.expert_map.data, bytes_of(inputs.expert_map));
}

Binding GpuCall::bind(Stream stream) const {
  MoeTensors tensors;
  tensors.weights = &layer_.weights();
  tensors.x = on_device(inputs_.x, x_);
  tensors.topk_ids = on_device(inputs_.topk_ids, ids_);
  tensors.topk_weights = on_device(inputs_.topk_weights, weights_);
  tensors.expert_map = on_device(inputs_.expert_map, map_);
  tensors.out = TensorView(out_.data(), inputs_.x.dtype, {tokens(), inputs_.x.shape[1]});
  tensors.invalid_ids = reinterpret_cast<std::uint32_t*>(counter_.data());
  return fourfold::bind(layer_.plan(), layer_.backend(), tensors, workspace_.span(), stream);
}

void GpuCall::poison(unsigned char value) const {
  workspace_.fill(value);
  out_.fill(0xff);  // NaN in both dtypes: an element that is not written shows
  counter_.fill(0);
}

Bytes GpuCall::run(unsigned char poison_value) const {
  poison(poison_value);
  const Stream stream = own_stream(layer_.backend());
  fourfold::run(bind(stream));
  synchronize(layer_.backend(), stream);
  return out();
}

Bytes GpuCall::out() const { return out_.read(bytes_of(inputs_.x)); }

std::uint32_t GpuCall::invalid_ids() const {
  std::uint32_t count = 0;
  std::memcpy(&count, counter_.read(sizeof count).data(), sizeof count);
  return count;
}

testing::AssertionResult GpuCall::untouched() const {
  const struct {
    const char* name;
    const GuardedMemory& memory;
    ConstTensorView host;
  } parts[] = {{"x", x_, inputs_.x},
               {"topk_ids", ids_, inputs_.topk_ids},
               {"topk_weights", weights_, inputs_.topk_weights},
               {"expert_map", map_, inputs_.expert_map},
               {"out", out_, {}},
               {"invalid_ids", counter_, {}},
               {"workspace", workspace_, {}}};
  for (const auto& part : parts) {
    if (!part.memory.intact()) return testing::AssertionFailure() << "written outside " << part.name;
    const std::uint64_t bytes = bytes_of(part.host);
    if (bytes > 0 && std::memcmp(part.memory.read(bytes).data(), part.host.data, bytes) != 0)
      return testing::AssertionFailure() << "the input " << part.name << " was written";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult call_fits(const GpuLayer& layer, const StackedExperts& experts, const MoeTensors& inputs) {
  const Caps& caps = layer.plan().caps();
  const GpuCall call(layer, inputs);
  const Bytes out = call.run(0x00);
  const std::uint32_t invalid = call.invalid_ids();
  if (call.run(0xff) != out) return testing::AssertionFailure() << "a poisoned workspace changes the result";
  const testing::AssertionResult untouched = call.untouched();
  if (!untouched) return untouched;
  const ReferenceResult reference = reference_moe(caps, experts, inputs);
  if (invalid != reference.invalid_ids)
    return testing::AssertionFailure() << invalid << " ids counted as out of range, not " << reference.invalid_ids;
  if (call.tokens() == 0) return testing::AssertionSuccess() << "no tokens";
  const ConstTensorView view(out.data(), caps.activation_dtype, {call.tokens(), caps.hidden});
  const Comparison comparison = compare_output(view, reference.expected, reference.bound);
  if (!comparison.ok) return testing::AssertionFailure() << comparison.reason;
  return testing::AssertionSuccess() << "largest error " << comparison.max_error_over_bound << " bounds";
}

testing::AssertionResult problem_fits(Backend& backend, std::string_view problem, std::uint64_t seed,
                                      const RandomCallOptions& options) {
  const Caps caps = support::caps_of(problem);
  const RandomExperts experts(caps, seed);
  const RandomCall call = random_call(caps, caps.max_tokens, seed + 1, options);
  const GpuLayer layer(backend, caps, experts.stacked());
  return call_fits(layer, experts.stacked(), call.tensors) << " [" << problem << "]";
}

Recording record(const GpuCall& call, const cuda::Stream& stream, cuda::CaptureMode mode) {
  Backend& backend = call.layer().backend();
  const std::uint64_t compiled = kernel_counters(backend).compiled;
  Recording recording;
  cuda::ScopedCapture capture(stream.context(), stream.value(), mode);
  fourfold::run(call.bind({stream.value()}));
  recording.graph = capture.end();
  calls_in_capture().compiles += kernel_counters(backend).compiled - compiled;
  recording.exec = recording.graph.instantiate();
  return recording;
}

Bytes replay(const Recording& recording, const GpuCall& call, const cuda::Stream& stream, unsigned char poison_value) {
  call.poison(poison_value);
  recording.exec.launch(stream.value());
  stream.synchronize();
  return call.out();
}

std::uint64_t free_bytes(const cuda::Context& context) {
  const cuda::ContextGuard current(context);
  std::size_t free = 0, total = 0;
  context.driver().call(context.driver().mem_get_info, context.ordinal(), &free, &total);
  return free;
}

}  // namespace fourfold::gpu_test
