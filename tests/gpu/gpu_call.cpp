// Moves calls to the GPU, runs them eagerly or through graphs, and looks at what they wrote.
#include "gpu/gpu_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpu/flush_memory.h"
#include "gpu/gpu_device.h"
#include "gpu/planted_faults.h"
#include "moe/reference_moe.h"
#include "moe/verify_call.h"

namespace fourfold::gpu_test {
namespace {

constexpr unsigned char kGuardByte = 0xff;
constexpr std::uint64_t kWorkspaceAlignment = 256;  // bind refuses less
constexpr std::uint64_t kWeightAlignment = 16;

/// Memory that ends where its mapping ends, when a test asked for it: with the alignment that this kind needs.
template <class Make>
auto placed(std::uint64_t alignment, const Make& make) {
  if (!allocations_are_flush()) return make();
  const FlushAllocations flush(alignment);
  return make();
}

Plan plan_for(const Caps& caps, const Backend& backend) {
  Plan plan = fourfold::plan(caps, backend.device());
  return workspaces_are_short() && plan.workspace_bytes() > 0 ? with_short_workspace(plan) : plan;
}

ExpertWeights pack(const Plan& plan, Backend& backend, const StackedExperts& experts) {
  auto source = stacked_source(experts, plan.caps());
  return placed(kWeightAlignment, [&] { return prepare_weights(plan, backend, *source); });
}

std::uint64_t bytes_of(const ConstTensorView& view) {
  return view.absent() ? 0 : static_cast<std::uint64_t>(view.bytes());
}

std::uint64_t element_bytes(const ConstTensorView& view) {
  return static_cast<std::uint64_t>(dtype_bits(view.dtype)) / 8;
}

ConstTensorView on_device(ConstTensorView view, const GuardedMemory& memory) {
  if (!view.absent()) view.data = memory.data();
  return view;
}

}  // namespace

bool& fresh_workspaces() {
  static bool fresh = false;
  return fresh;
}

GuardedMemory::GuardedMemory(Backend& backend, std::uint64_t bytes, std::uint64_t alignment)
    : backend_(backend),
      bytes_(bytes),
      guard_bytes_(allocations_are_flush() ? 0 : kGuardBytes),
      memory_(placed(alignment, [&] { return Workspace::allocate(bytes + 2 * guard_bytes_, backend); })) {
  if (!fresh_workspaces()) {
    fourfold::fill(backend_, memory_.span(), kGuardByte);  // the bytes themselves too
    return;
  }
  fourfold::fill(backend_, memory_.span().first(guard_bytes_), kGuardByte);
  fourfold::fill(backend_, memory_.span().last(guard_bytes_), kGuardByte);
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
  for (const std::span<std::byte> area : {all.first(guard_bytes_), all.last(guard_bytes_)}) {
    Bytes host(guard_bytes_);
    copy_to_host(backend_, host, area);
    if (host != Bytes(guard_bytes_, std::byte{kGuardByte})) return false;
  }
  return true;
}

GpuLayer::GpuLayer(Backend& backend, const Caps& caps, const StackedExperts& experts, bool cold)
    : GpuLayer(backend, plan_for(caps, backend), experts, cold) {}

GpuLayer::GpuLayer(Backend& backend, Plan plan, const StackedExperts& experts, bool cold)
    : backend_(backend),
      plan_(std::move(plan)),
      weights_(pack(plan_, backend, experts)),
      workspace_(backend, plan_.workspace_bytes(), kWorkspaceAlignment) {
  if (!cold) warm_up(plan_, backend);
}

GpuCall::GpuCall(const GpuLayer& layer, const MoeTensors& inputs) : GpuCall(layer, inputs, layer.workspace()) {}

GpuCall::GpuCall(const GpuLayer& layer, const MoeTensors& inputs, const GuardedMemory& workspace)
    : layer_(layer),
      workspace_(workspace),
      x_(layer.backend(), bytes_of(inputs.x)),
      ids_(layer.backend(), bytes_of(inputs.topk_ids), element_bytes(inputs.topk_ids)),
      weights_(layer.backend(), bytes_of(inputs.topk_weights), element_bytes(inputs.topk_weights)),
      map_(layer.backend(), bytes_of(inputs.expert_map), sizeof(std::int32_t)),
      out_(layer.backend(), bytes_of(inputs.x)),
      counter_(layer.backend(), sizeof(std::uint32_t), sizeof(std::uint32_t)) {
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
  counter_.fill(0);
  if (fresh_workspaces()) return;
  workspace_.fill(value);
  out_.fill(0xff);  // NaN in both dtypes: an element that is not written shows
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

std::vector<std::int64_t> spread_rows(std::int64_t tokens, std::int64_t count) {
  std::vector<std::int64_t> rows;
  count = std::min(tokens, count);
  for (std::int64_t i = 0; i < count; ++i) rows.push_back(count == 1 ? 0 : i * (tokens - 1) / (count - 1));
  return rows;
}

namespace {

Bytes gather(const std::byte* data, std::int64_t row_bytes, const std::vector<std::int64_t>& rows) {
  Bytes all;
  all.reserve(rows.size() * static_cast<std::size_t>(row_bytes));
  for (const std::int64_t row : rows) all.insert(all.end(), data + row * row_bytes, data + (row + 1) * row_bytes);
  return all;
}

Bytes gather(ConstTensorView& view, const std::vector<std::int64_t>& rows) {
  Bytes all =
      gather(static_cast<const std::byte*>(view.data), view.bytes() / std::max<std::int64_t>(1, view.shape[0]), rows);
  view.data = all.data();
  view.shape[0] = static_cast<std::int64_t>(rows.size());
  return all;
}

bool all_finite(const Bytes& out, DType dtype) {
  const unsigned infinite = dtype == DType::f16 ? 0x7c00 : 0x7f80;  // the exponent of infinities and NaN
  const std::size_t count = out.size() / 2;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, out.data() + 2 * i, 2);
    wrong += (bits & infinite) == infinite;
  }
  return wrong == 0;
}

}  // namespace

RowsOfCall::RowsOfCall(const MoeTensors& inputs, const std::vector<std::int64_t>& rows)
    : rows_(rows), tokens_(inputs.x.shape[0]), tensors_(inputs) {
  x_ = gather(tensors_.x, rows);
  ids_ = gather(tensors_.topk_ids, rows);
  weights_ = gather(tensors_.topk_weights, rows);
}

Bytes RowsOfCall::of_output(const Bytes& out) const {
  return gather(out.data(), static_cast<std::int64_t>(out.size()) / std::max<std::int64_t>(1, tokens_), rows_);
}

testing::AssertionResult samples_fit(const GpuLayer& layer, const StackedExperts& experts, const MoeTensors& inputs,
                                     std::int64_t rows) {
  const Caps& caps = layer.plan().caps();
  const GpuCall call(layer, inputs);
  const Bytes out = call.run(0x00);
  if (call.run(0xff) != out) return testing::AssertionFailure() << "a poisoned workspace changes the result";
  const testing::AssertionResult untouched = call.untouched();
  if (!untouched) return untouched;
  if (!all_finite(out, caps.activation_dtype)) return testing::AssertionFailure() << "an element is not finite";
  const RowsOfCall samples(inputs, spread_rows(call.tokens(), rows));
  const ReferenceResult reference = reference_moe(caps, experts, samples.tensors());
  const Bytes sampled = samples.of_output(out);
  const Comparison comparison =
      compare_output({sampled.data(), caps.activation_dtype, {samples.tensors().x.shape[0], caps.hidden}},
                     reference.expected, reference.bound);
  if (!comparison.ok) return testing::AssertionFailure() << "of the sampled rows: " << comparison.reason;
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
