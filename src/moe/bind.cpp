// Checks a call on the host and writes down what run() needs. One rule a check; the texts name tensor, value, rule.
#include "moe/bind.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "backend/backend_interface.h"
#include "core/check.h"
#include "fourfold/moe.h"
#include "plan/arena.h"
#include "plan/plan_data.h"
#include "plan/problem.h"
#include "plan/problem_text.h"

namespace fourfold {

Binding::Binding(std::unique_ptr<BoundMoe> bound) : bound_(std::move(bound)) {
  check(bound_ != nullptr, ErrorCode::usage, "Binding: null; make bindings with bind()");
}
Binding::~Binding() = default;
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;

void check_device(const Plan& plan, const Backend& backend, std::string_view call) {
  const Device& wanted = plan.device();
  const Device& got = backend.device();
  if (wanted.kind == got.kind && wanted.arch == got.arch && (wanted.kind != DeviceKind::cpu || wanted.isa == got.isa))
    return;
  const auto target = [](const Device& device) {
    return device.kind == DeviceKind::cpu ? cpu_isa_name(device.isa) : std::string_view(device.arch);
  };
  fail(ErrorCode::usage,
       "{}: the plan is for device \"{}\" ({}), the backend is \"{}\" ({}); plan with "
       "backend.device()",
       call, wanted.name, target(wanted), got.name, target(got));
}

namespace {

/// A tensor's bytes as addresses; empty ranges overlap nothing.
struct Range {
  std::string_view name;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

bool overlap(const Range& a, const Range& b) {
  return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

std::string shape_text(const ConstTensorView& view) {
  if (view.rank < 0 || view.rank > kMaxRank) return fmt::format("rank {}", view.rank);
  return fmt::format("[{}]", fmt::join(view.shape.begin(), view.shape.begin() + view.rank, ", "));
}

// Texts are made only when a check fails: bind is on the path of every call.
//
// Dtype is checked by the caller, so widths below are defined; `rows` of `row_elements` are at least 0.
Range check_data(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t row_elements) {
  const std::int64_t row_bytes = row_elements * dtype_bits(view.dtype) / 8;
  check(row_bytes == 0 || rows <= INT64_MAX / row_bytes, ErrorCode::usage,
        "bind: {} has {} rows of {} bytes, which leaves the address space; fix its shape", name, rows, row_bytes);
  const auto bytes = static_cast<std::uintptr_t>(rows * row_bytes);
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  if (bytes != 0 && view.data == nullptr)
    fail(ErrorCode::usage, "bind: {} {} has a null data pointer; pass its {} bytes", name, shape_text(view), bytes);
  const std::uintptr_t width = static_cast<std::uintptr_t>(dtype_bits(view.dtype)) / 8;
  check(begin % width == 0, ErrorCode::usage,
        "bind: {} is at address {:#x}, which is not a multiple of its {} byte "
        "elements; align it",
        name, begin, width);
  check(begin <= UINTPTR_MAX - bytes, ErrorCode::usage,
        "bind: {} at address {:#x} with {} bytes leaves the address "
        "space; fix its pointer or shape",
        name, begin, bytes);
  return {name, begin, begin + bytes};
}

Range check_matrix(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t columns) {
  if (view.rank != 2 || view.shape[0] != rows || view.shape[1] != columns)
    fail(ErrorCode::usage, "bind: {} has shape {}, expected [{}, {}]", name, shape_text(view), rows, columns);
  return check_data(name, view, rows, columns);
}

void check_dtype(std::string_view name, DType got, DType expected) {
  if (got != expected)
    fail(ErrorCode::usage, "bind: {} is {}, expected {}", name, dtype_text(got), dtype_text(expected));
}

std::int64_t check_tokens(const Caps& caps, const ConstTensorView& x) {
  if (x.rank != 2) fail(ErrorCode::usage, "bind: x has shape {}, expected [tokens, {}]", shape_text(x), caps.hidden);
  const std::int64_t tokens = x.shape[0];
  check(tokens >= 0, ErrorCode::usage, "bind: x has {} rows; token counts are 0 .. {}", tokens, caps.max_tokens);
  check(tokens <= caps.max_tokens, ErrorCode::usage,
        "bind: {} tokens, but the plan serves at most max_tokens = {}; plan with max_tokens >= {} or split the batch",
        tokens, caps.max_tokens, tokens);
  return tokens;
}

void check_weights(const Caps& caps, const ExpertWeights* weights) {
  check(weights != nullptr && !weights->empty(), ErrorCode::usage,
        "bind: weights are missing; pass the result of prepare_weights");
  const Caps& packed = weights->packed()->caps();
  if (!same_layout(packed, caps))
    fail(ErrorCode::usage,
         "bind: weights were packed for another layout ({}), the plan is {}; call prepare_weights with this plan",
         caps_text(packed), caps_text(caps));
}

Range check_map(const Caps& caps, const ConstTensorView& map) {
  if (caps.global_experts == 0) {
    if (!map.absent())
      fail(ErrorCode::usage,
           "bind: expert_map {} given, but caps.global_experts = 0 takes none; leave it "
           "out or plan with global_experts",
           shape_text(map));
    return {"expert_map"};
  }
  check(!map.absent(), ErrorCode::usage, "bind: expert_map is missing; caps.global_experts = {} needs I32 [{}]",
        caps.global_experts, caps.global_experts);
  check_dtype("expert_map", map.dtype, DType::i32);
  if (map.rank != 1 || map.shape[0] != caps.global_experts)
    fail(ErrorCode::usage, "bind: expert_map has shape {}, expected [{}] (caps.global_experts)", shape_text(map),
         caps.global_experts);
  return check_data("expert_map", map, 1, caps.global_experts);
}

Range check_workspace(const Plan& plan, std::span<std::byte> workspace) {
  const std::uint64_t needed = plan.workspace_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data());
  check(workspace.size() >= needed, ErrorCode::usage,
        "bind: workspace has {} bytes, the plan needs {}; pass plan.workspace_bytes() bytes", workspace.size(), needed);
  check(begin % kSegmentAlignment == 0, ErrorCode::usage,
        "bind: workspace is at address {:#x}, which is not a multiple of {}; align its base", begin, kSegmentAlignment);
  check(needed == 0 || begin != 0, ErrorCode::usage,
        "bind: workspace has a null pointer, the plan needs {} bytes; pass plan.workspace_bytes() bytes", needed);
  check(begin <= UINTPTR_MAX - needed, ErrorCode::usage,
        "bind: workspace at address {:#x} with {} bytes leaves the address space; fix its pointer", begin, needed);
  return {"workspace", begin, begin + needed};
}

Range check_counter(const std::uint32_t* counter) {
  const auto begin = reinterpret_cast<std::uintptr_t>(counter);
  check(begin % sizeof(std::uint32_t) == 0, ErrorCode::usage,
        "bind: invalid_ids is at address {:#x}, which is not a multiple of {}; align it", begin, sizeof(std::uint32_t));
  check(begin <= UINTPTR_MAX - sizeof(std::uint32_t), ErrorCode::usage,
        "bind: invalid_ids at address {:#x} leaves the address space; fix its pointer", begin);
  return {"invalid_ids", begin, counter == nullptr ? begin : begin + sizeof(std::uint32_t)};
}

void check_stream(const Device& device, Stream stream) {
  if (device.kind == DeviceKind::cpu)
    check(stream.handle == nullptr, ErrorCode::usage,
          "bind: a stream handle was given, but the CPU has only the null stream; pass Stream{{}}");
  else
    check(stream.handle != nullptr, ErrorCode::usage,
          "bind: no stream was given; a GPU needs an explicit one (own_stream(backend), or CU_STREAM_LEGACY for the "
          "default stream)");
}

void check_apart(const Range& a, const Range& b) {
  check(!overlap(a, b), ErrorCode::usage, "bind: {} [{:#x}, {:#x}) overlaps {} [{:#x}, {:#x}); use separate memory",
        a.name, a.begin, a.end, b.name, b.begin, b.end);
}

void check_dtypes(const Caps& caps, const MoeTensors& tensors) {
  check_dtype("x", tensors.x.dtype, caps.activation_dtype);
  check_dtype("out", tensors.out.dtype, caps.activation_dtype);
  check_dtype("topk_weights", tensors.topk_weights.dtype, DType::f32);
  const DType ids = tensors.topk_ids.dtype;
  if (ids != DType::i32 && ids != DType::i64)
    fail(ErrorCode::usage, "bind: topk_ids is {}, expected I32 or I64", dtype_text(ids));
}

std::array<Range, 4> check_inputs(const Caps& caps, const MoeTensors& tensors, std::int64_t tokens) {
  return {check_matrix("x", tensors.x, tokens, caps.hidden),
          check_matrix("topk_ids", tensors.topk_ids, tokens, caps.top_k),
          check_matrix("topk_weights", tensors.topk_weights, tokens, caps.top_k), check_map(caps, tensors.expert_map)};
}

}  // namespace

Binding bind(const Plan& plan, Backend& backend, const MoeTensors& tensors, std::span<std::byte> workspace,
             Stream stream) {
  const Caps& caps = plan.caps();
  check_device(plan, backend, "bind");
  check_stream(plan.device(), stream);
  check_weights(caps, tensors.weights);
  check_dtypes(caps, tensors);
  const std::int64_t tokens = check_tokens(caps, tensors.x);
  const Range out = check_matrix("out", tensors.out, tokens, caps.hidden);
  const std::array<Range, 4> inputs = check_inputs(caps, tensors, tokens);
  const Range counter = check_counter(tensors.invalid_ids);
  const Range scratch = check_workspace(plan, workspace);
  for (const Range& input : inputs) {
    check_apart(out, input);
    check_apart(input, scratch);
    check_apart(counter, input);
  }
  check_apart(out, scratch);
  check_apart(out, counter);
  check_apart(counter, scratch);

  auto bound = std::make_unique<BoundMoe>();
  bound->plan = plan.data();
  bound->weights = tensors.weights->packed();
  bound->backend = &backend.interface();
  bound->band = tokens == 0 ? nullptr : &plan.band_for(tokens);
  bound->tokens = tokens;
  bound->x = tensors.x.data;
  bound->topk_ids = tensors.topk_ids.data;
  bound->ids_are_64_bit = tensors.topk_ids.dtype == DType::i64;
  bound->topk_weights = tensors.topk_weights.as<float>();
  bound->out = tensors.out.data;
  bound->expert_map = tensors.expert_map.as<std::int32_t>();
  bound->invalid_ids = tensors.invalid_ids;
  bound->workspace = workspace.data();
  bound->stream = stream;
  if (tokens > 0) bound->backend->resolve(*bound);
  return Binding(std::move(bound));
}

void check_whole_call(const Caps& caps, const MoeTensors& tensors, std::int64_t tokens) {
  check_dtypes(caps, tensors);
  const Range out = check_matrix("out", tensors.out, tokens, caps.hidden);
  for (const Range& input : check_inputs(caps, tensors, tokens)) check_apart(out, input);
}

void warm_up(const Plan& plan, Backend& backend) {
  check_device(plan, backend, "warm_up");
  backend.interface().warm_up(plan);
}

}  // namespace fourfold
