// Whether a problem can run, and the plan that says how: the checks of include/fourfold/plan.h and the accessors.
#include "plan/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "formats/format.h"
#include "plan/cpu_plan.h"
#include "plan/cuda_plan.h"
#include "plan/plan_data.h"

namespace fourfold {
namespace {

constexpr std::array<std::string_view, 5> kActivationNames{"silu", "swiglu_oai", "situ", "gelu_tanh", "relu2"};
constexpr std::array<std::string_view, 4> kIsaNames{"portable", "avx2", "avx512", "avx512_bf16"};

std::string range_refusal(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return {};
  return fmt::format("{} = {} is outside {} .. {}; use {}", field, value, low, high, value < low ? low : high);
}

std::string width_refusal(std::string_view field, std::int64_t value) {
  if (value >= kWidthMultiple && value <= kMaxWidth && value % kWidthMultiple == 0) return {};
  // Upwards, because weights can be padded but not cut.
  const std::int64_t nearest = round_up(std::clamp(value, kWidthMultiple, kMaxWidth), kWidthMultiple);
  return fmt::format("{} = {} is not a multiple of {} in {} .. {}; use {} (pad the weights with zeros)", field, value,
                     kWidthMultiple, kWidthMultiple, kMaxWidth, nearest);
}

std::string activation_refusal(const Activation& activation) {
  const auto kind = activation.kind;
  if (static_cast<std::size_t>(kind) >= kActivationNames.size())
    return fmt::format("activation.kind = {} is no activation; use {}", static_cast<int>(kind),
                       fmt::join(kActivationNames, ", "));
  const bool oai = kind == ActivationKind::swiglu_oai;
  if (activation.limit) {
    if (!oai && kind != ActivationKind::silu)
      return fmt::format("activation.limit = {}: {} has no limit, only silu and swiglu_oai have; leave it out",
                         *activation.limit, activation_name(kind));
    if (!std::isfinite(*activation.limit) || *activation.limit <= 0)
      return fmt::format("activation.limit = {} is not finite and above 0; use 7 or leave it out", *activation.limit);
  }
  const auto oai_option = [&](std::string_view field, const std::optional<float>& value, float usual) -> std::string {
    if (!value) return {};
    if (!oai)
      return fmt::format("activation.{} = {}: {} has no {}, only swiglu_oai has; leave it out", field, *value,
                         activation_name(kind), field);
    if (!std::isfinite(*value)) return fmt::format("activation.{} = {} is not finite; use {}", field, *value, usual);
    return {};
  };
  std::string reason = oai_option("alpha", activation.alpha, 1.702f);
  if (reason.empty()) reason = oai_option("beta", activation.beta, 1.0f);
  return reason;
}

std::string dtype_refusal(DType dtype) {
  if (dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32) return {};
  return fmt::format("activation_dtype = {}: activations are BF16, F16 or, on a CPU, F32; use BF16", dtype_text(dtype));
}

std::string device_refusal(const Caps& caps, const Device& device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      if (static_cast<std::size_t>(device.isa) >= kIsaNames.size())
        return fmt::format("device.isa = {} is no instruction set; use {}", static_cast<int>(device.isa),
                           fmt::join(kIsaNames, ", "));
      return range_refusal("device.threads", device.threads, 1, 65536);
    case DeviceKind::cuda:
      return cuda_refusal(caps, device);
  }
  return fmt::format("device.kind = {} is no device; use cpu", static_cast<int>(device.kind));
}

}  // namespace

std::string_view activation_name(ActivationKind kind) noexcept {
  const auto index = static_cast<std::size_t>(kind);
  return index < kActivationNames.size() ? kActivationNames[index] : "unknown";
}

std::string_view cpu_isa_name(CpuIsa isa) noexcept {
  const auto index = static_cast<std::size_t>(isa);
  return index < kIsaNames.size() ? kIsaNames[index] : "unknown";
}

std::string dtype_text(DType dtype) {
  if (dtype > DType::f64) return fmt::format("dtype {}", static_cast<int>(dtype));
  return std::string(dtype_name(dtype));
}

std::string sizes_refusal(const Caps& caps) {
  std::string reason = range_refusal("max_tokens", caps.max_tokens, 0, kMaxTokens);
  if (reason.empty()) reason = range_refusal("top_k", caps.top_k, 1, kMaxTopK);
  if (reason.empty()) reason = range_refusal("experts", caps.experts, 1, kMaxExperts);
  if (reason.empty()) reason = range_refusal("global_experts", caps.global_experts, 0, kMaxGlobalExperts);
  if (reason.empty()) reason = width_refusal("hidden", caps.hidden);
  if (reason.empty()) reason = width_refusal("intermediate", caps.intermediate);
  if (reason.empty()) reason = dtype_refusal(caps.activation_dtype);
  if (reason.empty()) reason = activation_refusal(caps.activation);
  return reason;
}

std::string caps_refusal(const Caps& caps) {
  std::string reason = sizes_refusal(caps);
  return reason.empty() ? format_refusal(caps.format) : reason;
}

namespace {

// The one path of can_implement and plan: data when the problem can run, else the reason in `reason`.
std::shared_ptr<const PlanData> try_plan(const Caps& caps, const Device& device, std::string& reason,
                                         const CudaTileChoice& tiles = {}, bool sizes_only = false) {
  reason = caps_refusal(caps);
  if (reason.empty()) reason = device_refusal(caps, device);
  if (!reason.empty()) return nullptr;
  auto data = std::make_shared<PlanData>();
  data->caps = caps;
  data->device = device;
  data->forced_tiles = tiles;
  data->sizes_only = sizes_only;
  try {
    if (device.kind == DeviceKind::cuda)
      plan_cuda(*data);
    else
      plan_cpu(*data);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    reason = error.what();
    return nullptr;
  }
  return data;
}

}  // namespace

Support can_implement(const Caps& caps, const Device& device) {
  Support support;
  support.ok = try_plan(caps, device, support.reason) != nullptr;
  return support;
}

Plan plan(const Caps& caps, const Device& device) {
  std::string reason;
  std::shared_ptr<const PlanData> data = try_plan(caps, device, reason);
  check(data != nullptr, ErrorCode::unsupported, "{}", reason);
  return Plan(std::move(data));
}

Plan plan_with_tiles(const Caps& caps, const Device& device, const CudaTileChoice& choice) {
  std::string reason;
  std::shared_ptr<const PlanData> data = try_plan(caps, device, reason, choice);
  check(data != nullptr, ErrorCode::unsupported, "{}", reason);
  return Plan(std::move(data));
}

std::uint64_t required_workspace_bytes(const Caps& caps, const Device& device) {
  std::string reason;
  const std::shared_ptr<const PlanData> data = try_plan(caps, device, reason, {}, true);
  check(data != nullptr, ErrorCode::unsupported, "{}", reason);
  return data->workspace_bytes;
}

const Caps& Plan::caps() const noexcept { return data_->caps; }
const Device& Plan::device() const noexcept { return data_->device; }
const std::vector<Band>& Plan::bands() const noexcept { return data_->bands; }
const std::vector<std::string>& Plan::steps() const noexcept { return data_->steps; }
const std::vector<Segment>& Plan::segments() const noexcept { return data_->segments; }
const std::vector<Declined>& Plan::declined() const noexcept { return data_->declined; }
const std::vector<std::string>& Plan::notes() const noexcept { return data_->notes; }
std::uint64_t Plan::workspace_bytes() const noexcept { return data_->workspace_bytes; }
std::uint64_t Plan::weight_bytes() const noexcept { return data_->weight_bytes; }

const Band& Plan::band_for(std::int64_t tokens) const {
  for (const Band& band : data_->bands)
    if (tokens >= band.min_tokens && tokens <= band.max_tokens) return band;
  fail(ErrorCode::usage,
       "tokens = {} is outside 1 .. {} of this plan; plan with a larger max_tokens or split the batch", tokens,
       data_->caps.max_tokens);
}

std::vector<std::string> Plan::kernels() const {
  std::vector<std::string> names;
  for (const Band& band : data_->bands)
    for (const std::string& kernel : band.kernels)
      if (std::find(names.begin(), names.end(), kernel) == names.end()) names.push_back(kernel);
  return names;
}

}  // namespace fourfold
