// Runs one known call under hostile conditions and compares; plants faults into results on request.
#include "moe/verify_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/float16.h"
#include "core/hash.h"

namespace fourfold {
namespace {

constexpr std::uint32_t kInvalidIdsStart = 7;  // not zero: run() adds and never resets

double output_element(ConstTensorView out, std::int64_t index) {
  if (out.dtype == DType::f32) return out.as<float>()[index];
  const std::uint16_t half = out.as<std::uint16_t>()[index];
  return out.dtype == DType::f16 ? f16_to_float(half) : bf16_to_float(half);
}

void store_output_element(std::byte* out, DType dtype, std::int64_t index, float value) {
  const std::uint16_t half = dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
  if (dtype == DType::f32)
    std::memcpy(out + index * 4, &value, 4);
  else
    std::memcpy(out + index * 2, &half, 2);
}

/// Memory of the device between two guard areas. These are NaN in every dtype: what is read there shows, too.
class GuardedMemory {
 public:
  GuardedMemory(Backend& backend, std::uint64_t bytes)
      : backend_(backend), memory_(Workspace::allocate(bytes + 2 * kGuardBytes, backend)) {
    fill(backend_, memory_.span(), kGuardByte);
  }
  std::span<std::byte> span() const {
    return memory_.span().subspan(kGuardBytes, memory_.span().size() - 2 * kGuardBytes);
  }
  /// Whether nobody wrote into a guard area.
  bool intact() const {
    std::vector<std::byte> host(kGuardBytes);
    for (const std::span<std::byte> area : {memory_.span().first(kGuardBytes), memory_.span().last(kGuardBytes)}) {
      copy_to_host(backend_, host, area);
      if (std::any_of(host.begin(), host.end(), [](std::byte byte) { return byte != std::byte{kGuardByte}; }))
        return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuardBytes = 4096;
  static constexpr unsigned char kGuardByte = 0xff;
  Backend& backend_;
  Workspace memory_;
};

/// A tensor's copy in the device's memory; empty for an absent tensor.
class DeviceCopy {
 public:
  DeviceCopy(Backend& backend, ConstTensorView tensor) : backend_(backend), tensor_(tensor), memory_(backend, bytes()) {
    load(tensor.data);
  }
  /// Overwrites the copy with as many bytes of the host.
  void load(const void* host) {
    copy_to_device(backend_, memory_.span(), {static_cast<const std::byte*>(host), bytes()});
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> host(bytes());
    copy_to_host(backend_, host, memory_.span());
    return host;
  }
  ConstTensorView view() const {
    ConstTensorView view = tensor_;
    if (!tensor_.absent()) view.data = memory_.span().data();
    return view;
  }
  std::byte* data() const { return memory_.span().data(); }
  bool intact() const { return memory_.intact(); }

 private:
  std::size_t bytes() const { return tensor_.absent() ? 0 : static_cast<std::size_t>(tensor_.bytes()); }
  Backend& backend_;
  ConstTensorView tensor_;
  GuardedMemory memory_;
};

/// The inputs of a call in the device's memory.
struct DeviceInputs {
  DeviceInputs(Backend& backend, const MoeTensors& host)
      : x(backend, host.x),
        topk_ids(backend, host.topk_ids),
        topk_weights(backend, host.topk_weights),
        expert_map(backend, host.expert_map) {}
  MoeTensors tensors() const {
    MoeTensors device;
    device.x = x.view();
    device.topk_ids = topk_ids.view();
    device.topk_weights = topk_weights.view();
    device.expert_map = expert_map.view();
    return device;
  }
  std::uint64_t digest() const {
    std::uint64_t digests[4];
    const DeviceCopy* const copies[] = {&x, &topk_ids, &topk_weights, &expert_map};
    for (int i = 0; i < 4; ++i) {
      const std::vector<std::byte> bytes = copies[i]->read();
      digests[i] = hash64(bytes.data(), bytes.size());
    }
    return hash64(digests, sizeof digests);
  }
  bool intact() const { return x.intact() && topk_ids.intact() && topk_weights.intact() && expert_map.intact(); }
  DeviceCopy x, topk_ids, topk_weights, expert_map;
};

/// Runs a call as often as asked and notes the first thing that goes wrong.
class CallRunner {
 public:
  CallRunner(const KnownCall& call, Backend& backend)
      : call_(call),
        backend_(backend),
        plan_(plan(call.caps, backend.device())),
        workspace_(backend, plan_.workspace_bytes()) {
    auto source = stacked_source(*call.experts, call.caps);
    weights_ = prepare_weights(plan_, backend, *source);
    warm_up(plan_, backend);
  }

  /// Fills the workspace with `byte`, or leaves it when absent, then runs on the device. Returns the output.
  std::vector<std::byte> run_once(const MoeTensors& inputs, std::optional<unsigned char> byte) {
    const std::span<std::byte> workspace = workspace_.span();
    if (byte) fill(backend_, workspace, *byte);
    const std::vector<std::byte> poison = poisoned_output();
    const DType dtype = call_.caps.activation_dtype;
    const std::int64_t tokens = inputs.x.shape[0];
    const DeviceInputs device(backend_, inputs);
    const DeviceCopy out(backend_, ConstTensorView(poison.data(), dtype, {tokens, call_.caps.hidden}));
    const DeviceCopy counter(backend_, ConstTensorView(&kInvalidIdsStart, DType::i32, {1}));
    MoeTensors tensors = device.tensors();
    tensors.weights = &weights_;
    tensors.out = TensorView(out.data(), dtype, {tokens, call_.caps.hidden});
    tensors.invalid_ids = reinterpret_cast<std::uint32_t*>(counter.data());
    const std::uint64_t before = device.digest();
    const Stream stream = own_stream(backend_);
    run(fourfold::bind(plan_, backend_, tensors, workspace, stream));  // qualified: ADL also finds std::bind
    synchronize(backend_, stream);
    note(device.digest() == before && device.intact(), "an input tensor was written");
    note(out.intact() && counter.intact(), "memory outside the output or the counter was written");
    note(workspace_.intact(), "memory outside the workspace was written");
    std::uint32_t invalid = 0;
    std::memcpy(&invalid, counter.read().data(), sizeof invalid);
    note(invalid - kInvalidIdsStart == call_.invalid_ids,
         fmt::format("{} ids counted as out of range, {} expected", invalid - kInvalidIdsStart, call_.invalid_ids));
    return out.read();
  }

  void note(bool good, const std::string& text) {
    if (!good && fault_.empty()) fault_ = text;
  }
  const std::string& fault() const { return fault_; }

 private:
  /// NaN everywhere, but a number where NaN is the right answer: an element that is not written shows.
  std::vector<std::byte> poisoned_output() const {
    std::vector<std::byte> out(call_.inputs.x.bytes(), std::byte{0xff});
    for (std::size_t i = 0; i < call_.expected.size(); ++i)
      if (std::isnan(call_.expected[i])) store_output_element(out.data(), call_.caps.activation_dtype, i, -321.0f);
    return out;
  }

  const KnownCall& call_;
  Backend& backend_;
  Plan plan_;
  GuardedMemory workspace_;
  ExpertWeights weights_;
  std::string fault_;
};

std::int64_t id_at(ConstTensorView ids, std::int64_t index) {
  return ids.dtype == DType::i64 ? ids.as<std::int64_t>()[index] : ids.as<std::int32_t>()[index];
}

/// The local expert of an id, or -1.
std::int64_t expert_of(const KnownCall& call, std::int64_t id) {
  if (id < 0 || id >= call.caps.id_count()) return -1;
  if (call.caps.global_experts > 0) id = call.inputs.expert_map.as<std::int32_t>()[id];
  return id >= 0 && id < call.caps.experts ? id : -1;
}

/// topk_ids with the first live id and one of another expert exchanged; empty when there are no two such ids.
std::vector<std::byte> swapped_ids(const KnownCall& call) {
  const ConstTensorView ids = call.inputs.topk_ids;
  std::int64_t first = -1, second = -1;
  for (std::int64_t i = 0; i < ids.elements() && first < 0; ++i)
    if (expert_of(call, id_at(ids, i)) >= 0) first = id_at(ids, i);
  for (std::int64_t id = 0; first >= 0 && id < call.caps.id_count() && second < 0; ++id)
    if (expert_of(call, id) >= 0 && expert_of(call, id) != expert_of(call, first)) second = id;
  if (second < 0) return {};
  std::vector<std::byte> swapped(ids.bytes());
  const std::size_t width = dtype_bits(ids.dtype) / 8;
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    std::int64_t id = id_at(ids, i);
    id = id == first ? second : id == second ? first : id;
    std::memcpy(swapped.data() + i * width, &id, width);  // little-endian
  }
  return swapped;
}

/// What a run on other tokens leaves behind: x with every sign flipped.
std::vector<std::byte> previous_output(const KnownCall& call, CallRunner& runner) {
  std::vector<std::byte> x(call.inputs.x.bytes());
  if (!x.empty()) std::memcpy(x.data(), call.inputs.x.data, x.size());
  const std::size_t width = dtype_bits(call.inputs.x.dtype) / 8;
  for (std::size_t last = width - 1; last < x.size(); last += width) x[last] ^= std::byte{0x80};
  MoeTensors inputs = call.inputs;
  inputs.x.data = x.data();
  return runner.run_once(inputs, std::nullopt);
}

/// Returns why the fault could not be planted, empty when `out` now has it.
std::string plant(Inject inject, const KnownCall& call, CallRunner& runner, std::vector<std::byte>& out) {
  const std::vector<std::byte> right = out;
  switch (inject) {
    case Inject::none:
      return {};
    case Inject::nan:
      for (std::size_t i = 0; i < call.expected.size(); ++i)
        if (!std::isnan(call.expected[i])) {
          store_output_element(out.data(), call.caps.activation_dtype, i, std::numeric_limits<float>::quiet_NaN());
          break;
        }
      break;
    case Inject::zero:
      std::fill(out.begin(), out.end(), std::byte{0});
      break;
    case Inject::stale:
      out = previous_output(call, runner);
      break;
    case Inject::swap: {
      const std::vector<std::byte> ids = swapped_ids(call);
      if (ids.empty()) return "the call reaches fewer than two experts";
      MoeTensors inputs = call.inputs;
      inputs.topk_ids.data = ids.data();
      out = runner.run_once(inputs, std::nullopt);
      break;
    }
  }
  return out == right ? "this fault leaves the result of this call as it is" : "";
}

CaseResult checked(const KnownCall& call, Backend& backend, Inject inject, int replays) {
  CaseResult result;
  CallRunner runner(call, backend);
  std::vector<std::byte> out = runner.run_once(call.inputs, 0);
  runner.note(runner.run_once(call.inputs, 0xff) == out, "a poisoned workspace changes the result");
  for (int replay = 0; replay < replays; ++replay)
    runner.note(runner.run_once(call.inputs, std::nullopt) == out, "a replay of the same call changes the result");
  const std::string obstacle = plant(inject, call, runner, out);
  if (!obstacle.empty()) {
    result.reason = "no fault could be planted: " + obstacle;
    return result;
  }
  const ConstTensorView view(out.data(), call.caps.activation_dtype, {call.inputs.x.shape[0], call.caps.hidden});
  if (view.elements() > 0) {
    const Comparison comparison = compare_output(view, call.expected, call.bound);
    result.max_error_over_bound = comparison.max_error_over_bound;
    runner.note(comparison.ok, comparison.reason);
  }
  result.reason = runner.fault();
  result.ok = result.reason.empty() && inject == Inject::none;
  if (inject != Inject::none && result.reason.empty())
    result.reason = "the planted fault stays within the bounds of this call: its outputs are too small to tell";
  return result;
}

}  // namespace

Comparison compare_output(ConstTensorView out, std::span<const double> expected, std::span<const double> bound) {
  Comparison result;
  const auto elements = static_cast<std::size_t>(out.elements());
  if (elements == 0 || elements != expected.size() || elements != bound.size()) {
    result.reason = fmt::format("nothing can be compared: {} elements, {} expected, {} bounds", elements,
                                expected.size(), bound.size());
    return result;
  }
  const std::int64_t columns = out.rank > 0 ? std::max<std::int64_t>(1, out.shape[out.rank - 1]) : 1;
  for (std::size_t i = 0; i < elements; ++i) {
    const double value = output_element(out, i), want = expected[i], error = std::fabs(value - want);
    bool fits = false;
    if (std::isfinite(want)) {
      fits = std::isfinite(value) && std::isfinite(bound[i]) && error <= bound[i];
      if (std::isfinite(error) && error > 0)
        result.max_error_over_bound = std::max(result.max_error_over_bound, error / std::max(bound[i], 0x1p-1000));
    } else {
      fits = std::isnan(want) ? std::isnan(value) : value == want;
    }
    if (!fits && result.reason.empty())
      result.reason = fmt::format("row {} column {}: got {:.6g}, expected {:.6g} within {:.3g}", i / columns,
                                  i % columns, value, want, bound[i]);
    ++result.compared;
  }
  result.ok = result.reason.empty();
  return result;
}

CaseResult check_call(const KnownCall& call, Backend& backend, Inject inject, int replays) {
  CaseResult result;
  try {
    result = checked(call, backend, inject, replays);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unavailable) throw;  // too little memory says nothing about the numbers
    result.refused = error.code() == ErrorCode::unsupported || error.code() == ErrorCode::bad_input;
    result.reason = fmt::format("{} (code {})", error.what(), error.exit_code());
  }
  result.name = call.name;
  return result;
}

}  // namespace fourfold
