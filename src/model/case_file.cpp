// Reads, runs and writes case files. Format: docs/cases.md.
#include "model/case_file.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "model/safetensors.h"
#include "moe/reference_moe.h"
#include "moe/verify_call.h"

namespace fourfold {
namespace {

constexpr const char* kCaseFormat = "fourfold-moe-case";
constexpr std::array kOrderNames = {"gate_up", "up_gate", "interleaved"};  // by GateUpOrder
constexpr std::array kDTypes = {DType::bf16, DType::f16, DType::f32};
constexpr std::array kDTypeNames = {"bf16", "f16", "f32"};
constexpr std::array kActivations = {ActivationKind::silu, ActivationKind::swiglu_oai, ActivationKind::situ,
                                     ActivationKind::gelu_tanh, ActivationKind::relu2};
constexpr std::array kFormats = {WeightFormat::nvfp4, WeightFormat::mxfp4, WeightFormat::int4};
constexpr float kDefaultAlpha = 1.702f, kDefaultBeta = 1.0f;

class CaseReader {
 public:
  explicit CaseReader(const std::string& file) : name_(file), file_(SafetensorsFile::open(file, false)) {}

  MoeCase read() {
    check(text("format") == kCaseFormat, ErrorCode::bad_input, "{}: metadata format is '{}', a case file has '{}'",
          name_, text("format"), kCaseFormat);
    case_.name = file_->header().metadata.count("name") ? text("name") : std::filesystem::path(name_).stem().string();
    read_caps();
    case_.refuse = choice("expect", std::array{"output", "refuse"}) == 1;
    case_.invalid_ids = static_cast<std::uint64_t>(integer("invalid_ids"));
    read_inputs();
    read_experts();
    if (!case_.refuse) {
      case_.expected = doubles("expected");
      case_.bound = doubles("bound");
    }
    return std::move(case_);
  }

 private:
  const std::string& text(const std::string& key) const {
    const auto found = file_->header().metadata.find(key);
    check(found != file_->header().metadata.end(), ErrorCode::bad_input,
          "{}: metadata has no '{}'; every case file has it (docs/cases.md)", name_, key);
    return found->second;
  }

  template <std::size_t N>
  std::size_t choice(const std::string& key, const std::array<const char*, N>& names) const {
    const std::string& value = text(key);
    std::string accepted;
    for (std::size_t i = 0; i < N; ++i) {
      if (value == names[i]) return i;
      accepted += std::string(i ? ", " : "") + names[i];
    }
    fail(ErrorCode::bad_input, "{}: metadata {} is '{}', accepted are {}", name_, key, value, accepted);
  }

  std::int64_t integer(const std::string& key) const {
    const std::string& value = text(key);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    check(error == std::errc() && end == value.data() + value.size() && number >= 0, ErrorCode::bad_input,
          "{}: metadata {} is '{}', not an integer from 0 to 2^63-1", name_, key, value);
    return number;
  }

  std::optional<float> number(const std::string& key) const {
    const std::string& value = text(key);
    if (value == "None") return std::nullopt;
    double parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    check(error == std::errc() && end == value.data() + value.size(), ErrorCode::bad_input,
          "{}: metadata {} is '{}', neither a number nor None", name_, key, value);
    return static_cast<float>(parsed);
  }

  void read_caps() {
    Caps& caps = case_.caps;
    caps.top_k = integer("top_k");
    caps.experts = integer("experts");
    caps.hidden = integer("hidden");
    caps.intermediate = integer("intermediate");
    caps.format.format = kFormats[choice("weight_format", std::array{"nvfp4", "mxfp4", "int4"})];
    caps.format.group_size = integer("group_size");
    caps.activation_dtype = kDTypes[choice("activation_dtype", kDTypeNames)];
    caps.activation.kind =
        kActivations[choice("activation", std::array{"silu", "swiglu_oai", "situ", "gelu_tanh", "relu2"})];
    caps.activation.limit = number("limit");
    // Every file has alpha and beta; only what differs from the defaults is an option that could be refused.
    const bool oai = caps.activation.kind == ActivationKind::swiglu_oai;
    const std::optional<float> alpha = number("alpha"), beta = number("beta");
    if (alpha && (oai || *alpha != kDefaultAlpha)) caps.activation.alpha = alpha;
    if (beta && (oai || *beta != kDefaultBeta)) caps.activation.beta = beta;
    case_.experts.order = static_cast<GateUpOrder>(choice("gate_up_order", kOrderNames));
    caps.router_weight_on_input = choice("router_weight_on_input", std::array{"false", "true"}) == 1;
    if (file_->header().metadata.count("batch_invariant"))
      caps.batch_invariant = choice("batch_invariant", std::array{"false", "true"}) == 1;
  }

  /// A copy of the tensor, aligned for any type; absent when the file has none.
  ConstTensorView optional_tensor(const std::string& name) {
    for (const SafetensorsEntry& entry : file_->header().entries) {
      if (entry.name != name) continue;
      check(entry.shape.size() <= kMaxRank, ErrorCode::bad_input,
            "{}: tensor {} has {} dimensions, at most {} are used", name_, name, entry.shape.size(), kMaxRank);
      case_.storage.emplace_back(new std::byte[entry.bytes() + 1]);
      std::byte* data = case_.storage.back().get();
      file_->read(entry, 0, {data, static_cast<std::size_t>(entry.bytes())});
      ConstTensorView view(data, entry.dtype, {});
      view.rank = static_cast<int>(entry.shape.size());
      std::copy(entry.shape.begin(), entry.shape.end(), view.shape.begin());
      return view;
    }
    return {};
  }

  ConstTensorView tensor(const std::string& name) {
    const ConstTensorView view = optional_tensor(name);
    check(!view.absent(), ErrorCode::bad_input, "{}: no tensor '{}'; every such case has it (docs/cases.md)", name_,
          name);
    return view;
  }

  void read_inputs() {
    case_.inputs.x = tensor("x");
    case_.inputs.topk_ids = tensor("topk_ids");
    case_.inputs.topk_weights = tensor("topk_weights");
    case_.inputs.expert_map = optional_tensor("expert_map");
    check(case_.inputs.x.rank == 2, ErrorCode::bad_input, "{}: tensor x has {} dimensions, expected [tokens, hidden]",
          name_, case_.inputs.x.rank);
    case_.caps.max_tokens = case_.inputs.x.shape[0];
    if (!case_.inputs.expert_map.absent()) case_.caps.global_experts = case_.inputs.expert_map.elements();
  }

  void read_experts() {
    StackedExperts& experts = case_.experts;
    experts.gate_up_codes = tensor("gate_up.codes");
    experts.gate_up_scales = tensor("gate_up.scales");
    experts.gate_up_zeros = optional_tensor("gate_up.zeros");
    experts.gate_up_global = optional_tensor("gate_up.global");
    experts.gate_up_bias = optional_tensor("gate_up.bias");
    experts.down_codes = tensor("down.codes");
    experts.down_scales = tensor("down.scales");
    experts.down_zeros = optional_tensor("down.zeros");
    experts.down_global = optional_tensor("down.global");
    experts.down_bias = optional_tensor("down.bias");
    case_.caps.format.zero_points = !experts.gate_up_zeros.absent() || !experts.down_zeros.absent();
    case_.caps.gate_up_bias = !experts.gate_up_bias.absent();
    case_.caps.down_bias = !experts.down_bias.absent();
  }

  std::vector<double> doubles(const std::string& name) {
    const ConstTensorView view = tensor(name);
    const ConstTensorView& x = case_.inputs.x;
    check(view.dtype == DType::f64 && view.rank == 2 && view.shape == x.shape, ErrorCode::bad_input,
          "{}: tensor {} is not F64 of x's shape [{}, {}]", name_, name, x.shape[0], x.shape[1]);
    std::vector<double> values(static_cast<std::size_t>(view.elements()));
    if (!values.empty()) std::memcpy(values.data(), view.data, values.size() * sizeof(double));
    return values;
  }

  std::string name_;
  std::unique_ptr<SafetensorsFile> file_;
  MoeCase case_;
};

/// Why the inputs do not fit the caps; empty when they do. bind() would call it the caller's error, but here the
/// caller is a file.
std::string input_fault(const MoeCase& test) {
  const Caps& caps = test.caps;
  const MoeTensors& inputs = test.inputs;
  const auto fits = [](ConstTensorView view, std::int64_t rows, std::int64_t columns) {
    return view.rank == 2 && view.shape[0] == rows && view.shape[1] == columns;
  };
  if (!fits(inputs.x, caps.max_tokens, caps.hidden) || inputs.x.dtype != caps.activation_dtype)
    return fmt::format("x is not [{}, {}] of the activation dtype", caps.max_tokens, caps.hidden);
  if (!fits(inputs.topk_ids, caps.max_tokens, caps.top_k) ||
      (inputs.topk_ids.dtype != DType::i32 && inputs.topk_ids.dtype != DType::i64))
    return fmt::format("topk_ids is not I32 or I64 [{}, {}]", caps.max_tokens, caps.top_k);
  if (!fits(inputs.topk_weights, caps.max_tokens, caps.top_k) || inputs.topk_weights.dtype != DType::f32)
    return fmt::format("topk_weights is not F32 [{}, {}]", caps.max_tokens, caps.top_k);
  if (!inputs.expert_map.absent() && (inputs.expert_map.rank != 1 || inputs.expert_map.dtype != DType::i32))
    return "expert_map is not I32 of one dimension";
  return {};
}

struct NamedTensor {
  const char* name;
  ConstTensorView view;
};

std::map<std::string, std::string> case_metadata(const std::string& name, const Caps& caps, GateUpOrder order,
                                                 std::uint64_t invalid_ids) {
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const Activation& activation = caps.activation;
  std::optional<float> limit = activation.limit;
  if (!limit && activation.kind == ActivationKind::swiglu_oai) limit = 7.0f;
  std::size_t dtype = 0;
  while (dtype + 1 < kDTypes.size() && kDTypes[dtype] != caps.activation_dtype) ++dtype;
  return {{"format", kCaseFormat},
          {"name", name},
          {"top_k", std::to_string(caps.top_k)},
          {"experts", std::to_string(caps.experts)},
          {"hidden", std::to_string(caps.hidden)},
          {"intermediate", std::to_string(caps.intermediate)},
          {"weight_format", std::string(weight_format_name(caps.format.format))},
          {"group_size", std::to_string(caps.format.group_size)},
          {"activation_dtype", kDTypeNames[dtype]},
          {"activation", std::string(activation_name(activation.kind))},
          {"limit", limit ? fmt::format("{}", *limit) : "None"},
          {"alpha", fmt::format("{}", activation.alpha.value_or(kDefaultAlpha))},
          {"beta", fmt::format("{}", activation.beta.value_or(kDefaultBeta))},
          {"gate_up_order", kOrderNames[static_cast<std::size_t>(order)]},
          {"router_weight_on_input", flag(caps.router_weight_on_input)},
          {"batch_invariant", flag(caps.batch_invariant)},
          {"invalid_ids", std::to_string(invalid_ids)},
          {"expect", "output"}};
}

/// The bytes of a safetensors file: length word, header padded with spaces to a multiple of 8, data without gaps.
std::vector<std::byte> safetensors_bytes(const std::map<std::string, std::string>& metadata,
                                         std::span<const NamedTensor> tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.view.absent()) continue;
    const std::vector<std::int64_t> shape(tensor.view.shape.begin(), tensor.view.shape.begin() + tensor.view.rank);
    const std::int64_t end = checked_add(offset, tensor.view.bytes(), "case file bytes", ErrorCode::bad_input);
    header[tensor.name] = {
        {"dtype", std::string(dtype_name(tensor.view.dtype))}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::bad_input, "case file: the case name is not UTF-8 text; choose another name");
  }
  text.resize(round_up(static_cast<std::int64_t>(text.size()), 8), ' ');
  const std::uint64_t length = text.size();
  std::vector<std::byte> bytes(8 + text.size() + static_cast<std::size_t>(offset));
  std::memcpy(bytes.data(), &length, 8);  // little-endian
  std::memcpy(bytes.data() + 8, text.data(), text.size());
  std::byte* to = bytes.data() + 8 + text.size();
  for (const NamedTensor& tensor : tensors) {
    const auto size = static_cast<std::size_t>(tensor.view.absent() ? 0 : tensor.view.bytes());
    if (size > 0) std::memcpy(to, tensor.view.data, size);
    to += size;
  }
  return bytes;
}

}  // namespace

MoeCase read_case(const std::string& file) { return CaseReader(file).read(); }

Caps case_caps(const std::string& file) { return read_case(file).caps; }

CaseResult run_case(const std::string& file, Backend& backend, Inject inject) {
  const MoeCase test = read_case(file);
  CaseResult result;
  const std::string fault = input_fault(test);
  if (fault.empty()) {
    result = check_call({test.name, test.caps, &test.experts, test.inputs, test.expected, test.bound, test.invalid_ids},
                        backend, inject, 1);
  } else {
    result.name = test.name;
    result.refused = true;
    result.reason = fault;
  }
  if (!test.refuse) return result;
  if (inject != Inject::none) {
    result.ok = false;
    result.reason = "no fault can be planted: the case expects a refusal, so nothing is computed";
    return result;
  }
  result.ok = result.refused;
  if (!result.ok) result.reason = "the case expects a refusal, but the call ran: " + result.reason;
  return result;
}

void dump_case(const std::string& file, const std::string& name, const Caps& caps, const StackedExperts& experts,
               const MoeTensors& tensors) {
  const ReferenceResult reference = reference_moe(caps, experts, tensors);
  const std::int64_t tokens = tensors.x.shape[0];
  const ConstTensorView expected(reference.expected.data(), DType::f64, {tokens, caps.hidden});
  const ConstTensorView bound(reference.bound.data(), DType::f64, {tokens, caps.hidden});
  const NamedTensor all[] = {{"x", tensors.x},
                             {"topk_ids", tensors.topk_ids},
                             {"topk_weights", tensors.topk_weights},
                             {"gate_up.codes", experts.gate_up_codes},
                             {"gate_up.scales", experts.gate_up_scales},
                             {"gate_up.zeros", experts.gate_up_zeros},
                             {"gate_up.global", experts.gate_up_global},
                             {"gate_up.bias", experts.gate_up_bias},
                             {"down.codes", experts.down_codes},
                             {"down.scales", experts.down_scales},
                             {"down.zeros", experts.down_zeros},
                             {"down.global", experts.down_global},
                             {"down.bias", experts.down_bias},
                             {"expert_map", tensors.expert_map},
                             {"expected", expected},
                             {"bound", bound}};
  write_file_atomically(file, safetensors_bytes(case_metadata(name, caps, experts.order, reference.invalid_ids), all));
}

}  // namespace fourfold
