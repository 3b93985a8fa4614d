// The experts of one layer: every tensor checked at once, then one expert after the other.
#include "model/expert_reader.h"

#include <array>
#include <cstring>

#include "core/check.h"
#include "core/float16.h"
#include "formats/dequantize.h"
#include "model/message_text.h"

namespace fourfold {
namespace {

enum Projection { kGate, kUp, kDown };

/// Names of the three matrices: w1, w3, w2 is Mixtral's spelling.
struct ProjectionNames {
  std::array<const char*, 3> names;
  std::string module(const std::string& prefix, std::int64_t expert, int projection) const {
    return fmt::format("{}.{}.{}", prefix, expert, names[static_cast<std::size_t>(projection)]);
  }
};
ProjectionNames projection_names(const Checkpoint& checkpoint, const std::string& prefix) {
  if (checkpoint.contains_prefix(prefix + ".0.w1.")) return {{"w1", "w3", "w2"}};
  return {{"gate_proj", "up_proj", "down_proj"}};
}

std::int64_t rows_of(const ModelConfig& config, int projection) {
  return projection == kDown ? config.hidden : config.expert_intermediate;
}
std::int64_t columns_of(const ModelConfig& config, int projection) {
  return projection == kDown ? config.expert_intermediate : config.hidden;
}

bool is_gpt_oss(const Checkpoint& checkpoint, const std::string& prefix) {
  return checkpoint.contains_prefix(prefix + ".gate_up_proj_") || checkpoint.contains_prefix(prefix + ".down_proj_");
}

void check_floats(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const bool ok = tensor.dtype == DType::bf16 || tensor.dtype == DType::f16 || tensor.dtype == DType::f32;
  check(ok, ErrorCode::bad_input, "{}: tensor '{}' has dtype {}; expected is BF16, F16 or F32", checkpoint.path(),
        tensor.name, dtype_name(tensor.dtype));
}

/// gpt-oss: blocks [E, rows, k / 32, 16], scales [E, rows, k / 32]; rows of the first projection alternate gate, up.
ExpertLayerInfo describe_gpt_oss(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix) {
  const std::int64_t e = config.experts, h = config.hidden, i = config.expert_intermediate;
  check(h % 32 == 0 && i % 32 == 0, ErrorCode::bad_input,
        "{}: gpt-oss blocks need hidden and intermediate sizes that are multiples of 32; they are {} and {}",
        config.file, h, i);
  const std::vector<std::string> needed{prefix + ".gate_up_proj_blocks", prefix + ".gate_up_proj_scales",
                                        prefix + ".down_proj_blocks", prefix + ".down_proj_scales"};
  checkpoint.require_all(needed);
  const auto check_bytes = [&](const std::string& name, std::initializer_list<std::int64_t> shape, bool scale) {
    const TensorInfo& tensor = checkpoint.require(name);
    check(tensor.dtype == DType::u8 || (scale && tensor.dtype == DType::f8_e8m0), ErrorCode::bad_input,
          "{}: tensor '{}' has dtype {}; expected is U8{}", checkpoint.path(), name, dtype_name(tensor.dtype),
          scale ? " or F8_E8M0" : "");
    check_shape(checkpoint, tensor, shape);
  };
  check_bytes(needed[0], {e, 2 * i, h / 32, 16}, false);
  check_bytes(needed[1], {e, 2 * i, h / 32}, true);
  check_bytes(needed[2], {e, h, i / 32, 16}, false);
  check_bytes(needed[3], {e, h, i / 32}, true);
  check_declared(config, prefix, WeightLayout::gpt_oss_mxfp4);
  ExpertLayerInfo info;
  info.quantised = true;
  info.format = FormatSpec::mxfp4();
  info.layout = WeightLayout::gpt_oss_mxfp4;
  const auto has_bias = [&](const std::string& name, std::initializer_list<std::int64_t> shape) {
    const TensorInfo* tensor = checkpoint.find(name);
    if (tensor == nullptr) return false;
    check_floats(checkpoint, *tensor);
    check_shape(checkpoint, *tensor, shape);
    return true;
  };
  info.gate_up_bias = has_bias(prefix + ".gate_up_proj_bias", {e, 2 * i});
  info.down_bias = has_bias(prefix + ".down_proj_bias", {e, h});
  return info;
}

/// All experts must have a bias, or none.
bool all_have_bias(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                   std::span<const int> projections, std::vector<std::string>& absent) {
  const ProjectionNames names = projection_names(checkpoint, prefix);
  std::vector<std::string> missing;
  std::int64_t found = 0;
  for (std::int64_t expert = 0; expert < config.experts; ++expert)
    for (int projection : projections) {
      const std::string name = names.module(prefix, expert, projection) + ".bias";
      const TensorInfo* bias = checkpoint.find(name);
      if (bias == nullptr) {
        missing.push_back(name);
        continue;
      }
      check_floats(checkpoint, *bias);
      check_shape(checkpoint, *bias, {rows_of(config, projection)});
      ++found;
    }
  if (found > 0) absent.insert(absent.end(), missing.begin(), missing.end());
  return found > 0;
}

bool alike(const LinearInfo& a, const LinearInfo& b) {
  if (a.layout != b.layout) return false;
  return a.quantised() ? a.format == b.format : a.source_dtype == b.source_dtype;
}

std::string layer_text(const ExpertLayerInfo& info) {
  if (info.layout == WeightLayout::plain) return fmt::format("none ({})", dtype_name(info.source_dtype));
  if (info.layout == WeightLayout::fp8_block) return "fp8 (blocks of scales)";
  std::string text(weight_format_name(info.format.format));
  if (info.format.format == WeightFormat::int4)
    text += (info.format.group_size == 0 ? " row" : fmt::format(" g{}", info.format.group_size)) +
            (info.format.zero_points ? std::string(" asymmetric") : std::string());
  return fmt::format("{} ({})", text, weight_layout_name(info.layout));
}

/// Rows of a projection inside gpt-oss's stacked tensors.
struct StackedRows {
  std::string tensor;  // "..._proj"; + "_blocks", "_scales", "_bias"
  std::int64_t rows = 0, first = 0, step = 1;
};
StackedRows stacked_rows(const ModelConfig& config, const std::string& prefix, int projection) {
  if (projection == kDown) return {prefix + ".down_proj", config.hidden, 0, 1};
  return {prefix + ".gate_up_proj", 2 * config.expert_intermediate, projection == kUp ? 1 : 0, 2};
}

/// Quantised experts, one at a time. Everything was checked by describe_experts.
class CheckpointExperts : public ExpertSource {
 public:
  CheckpointExperts(const Checkpoint& checkpoint, const ModelConfig& config, std::string prefix, ExpertLayerInfo info)
      : checkpoint_(checkpoint), config_(config), prefix_(std::move(prefix)), info_(std::move(info)) {}

  ExpertMatrices expert(std::int64_t index) override {
    check(index >= 0 && index < config_.experts, ErrorCode::usage, "expert {} was asked for; there are {}", index,
          config_.experts);
    ExpertMatrices matrices;
    for (int projection : {kGate, kUp, kDown}) {
      MatrixSource& source = projection == kGate ? matrices.gate : projection == kUp ? matrices.up : matrices.down;
      source = info_.layout == WeightLayout::gpt_oss_mxfp4 ? stacked(index, projection) : separate(index, projection);
    }
    return matrices;
  }

 private:
  MatrixSource separate(std::int64_t index, int projection) {
    const std::string module = projection_names(checkpoint_, prefix_).module(prefix_, index, projection);
    LinearInfo linear;
    linear.layout = info_.layout;
    linear.format = info_.format;
    LinearBytes& bytes = bytes_[static_cast<std::size_t>(projection)];
    bytes = {};  // the expert before goes first: never two at a time
    bytes = read_linear(checkpoint_, config_, module, linear, rows_of(config_, projection),
                        columns_of(config_, projection));
    return bytes.source;
  }

  /// Bytes [offset, offset + count) of a tensor: from the mapping, or read into `buffer`.
  const std::byte* slice(const std::string& name, std::int64_t offset, std::int64_t count,
                         std::vector<std::byte>& buffer) const {
    const std::span<const std::byte> mapped = checkpoint_.mapped(name);
    if (!mapped.empty()) return mapped.data() + offset;
    buffer.resize(static_cast<std::size_t>(count));
    checkpoint_.read_range(name, static_cast<std::uint64_t>(offset), buffer);
    return buffer.data();
  }

  MatrixSource stacked(std::int64_t index, int projection) {
    const StackedRows place = stacked_rows(config_, prefix_, projection);
    const std::int64_t k = columns_of(config_, projection), groups = k / 32;
    auto& buffers = buffers_[static_cast<std::size_t>(projection)];
    MatrixSource source;
    const std::int64_t code_bytes = place.rows * (k / 2), scale_bytes = place.rows * groups;
    const std::byte* codes = slice(place.tensor + "_blocks", index * code_bytes, code_bytes, buffers[0]);
    source.codes = reinterpret_cast<const std::uint8_t*>(codes) + place.first * (k / 2);
    source.codes_row_bytes = place.step * (k / 2);
    const std::byte* scales = slice(place.tensor + "_scales", index * scale_bytes, scale_bytes, buffers[1]);
    source.scales = scales + place.first * groups;
    source.scales_row_bytes = place.step * groups;
    source.scale_dtype = checkpoint_.require(place.tensor + "_scales").dtype;
    if (projection == kDown ? info_.down_bias : info_.gate_up_bias) {
      const TensorInfo& tensor = checkpoint_.require(place.tensor + "_bias");
      const std::int64_t width = dtype_bits(tensor.dtype) / 8, bias_bytes = place.rows * width;
      const std::byte* bias = slice(tensor.name, index * bias_bytes, bias_bytes, buffers[2]);
      source.bias = bias + place.first * width;
      source.bias_dtype = tensor.dtype;
      source.bias_stride_bytes = place.step * width;
    }
    return source;
  }

  const Checkpoint& checkpoint_;
  ModelConfig config_;
  std::string prefix_;
  ExpertLayerInfo info_;
  std::array<LinearBytes, 3> bytes_;
  std::array<std::array<std::vector<std::byte>, 3>, 3> buffers_;
};

float float_at(const void* data, DType dtype, std::int64_t offset_bytes) {
  const auto* at = static_cast<const std::byte*>(data) + offset_bytes;
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

}  // namespace

ExpertLayerInfo describe_experts(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix) {
  check(config.experts > 0 && config.hidden > 0 && config.expert_intermediate > 0, ErrorCode::bad_input,
        "{}: experts {}, hidden {} and expert intermediate {} must be positive", config.file, config.experts,
        config.hidden, config.expert_intermediate);
  if (is_gpt_oss(checkpoint, prefix)) {
    ExpertLayerInfo info = describe_gpt_oss(checkpoint, config, prefix);
    info.layout_name = layer_text(info);
    return info;
  }
  check(!checkpoint.contains(prefix + ".gate_up_proj"), ErrorCode::unsupported,
        "{}: '{}.gate_up_proj' stacks unquantised experts in one tensor; one tensor per expert is supported",
        checkpoint.path(), prefix);
  // Before anything is listed per expert: the count is a number in a file, and can be absurd.
  check(config.experts <= static_cast<std::int64_t>(checkpoint.tensors().size()), ErrorCode::bad_input,
        "{}: {} experts, but {} holds {} tensors in all; correct the count or add the missing shards", config.file,
        config.experts, checkpoint.path(), checkpoint.tensors().size());
  const ProjectionNames names = projection_names(checkpoint, prefix);
  std::vector<std::string> absent;
  std::string first_module;
  LinearInfo first;
  for (std::int64_t expert = 0; expert < config.experts; ++expert)
    for (int projection : {kGate, kUp, kDown}) {
      const std::string module = names.module(prefix, expert, projection);
      const std::size_t absent_before = absent.size();
      const LinearInfo info =
          probe_linear(checkpoint, config, module, rows_of(config, projection), columns_of(config, projection), absent);
      if (absent.size() > absent_before) continue;
      if (first_module.empty()) {
        first_module = module;
        first = info;
      }
      check(alike(first, info), ErrorCode::unsupported,
            "{}: '{}' and '{}' are stored in different formats; the experts of one layer must be stored alike",
            checkpoint.path(), first_module, module);
    }
  ExpertLayerInfo info;
  constexpr std::array<int, 2> kFirst{kGate, kUp};
  constexpr std::array<int, 1> kSecond{kDown};
  info.gate_up_bias = all_have_bias(checkpoint, config, prefix, kFirst, absent);
  info.down_bias = all_have_bias(checkpoint, config, prefix, kSecond, absent);
  check(absent.empty(), ErrorCode::bad_input, "{}: tensors are absent: {}", checkpoint.path(), listed(absent));
  info.quantised = first.quantised();
  info.format = first.format;
  info.source_dtype = first.source_dtype;
  info.layout = first.layout;
  info.layout_name = layer_text(info);
  return info;
}

std::unique_ptr<ExpertSource> expert_source(const Checkpoint& checkpoint, const ModelConfig& config,
                                            const std::string& prefix) {
  ExpertLayerInfo info = describe_experts(checkpoint, config, prefix);
  check(info.quantised, ErrorCode::unsupported, "{}: the experts of '{}' are not in a 4-bit format: {}",
        checkpoint.path(), prefix, info.layout_name);
  return std::make_unique<CheckpointExperts>(checkpoint, config, prefix, std::move(info));
}

void read_expert_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                     std::int64_t expert, const ExpertValues& values) {
  const std::array<std::span<float>, 3> out{values.gate, values.up, values.down};
  const auto size = static_cast<std::size_t>(
      checked_mul(config.hidden, config.expert_intermediate, "read_expert_f32", ErrorCode::bad_input));
  for (const std::span<float>& span : out)
    check(span.size() == size, ErrorCode::usage, "read_expert_f32: an output has {} elements instead of {}",
          span.size(), size);
  if (is_gpt_oss(checkpoint, prefix)) {
    const std::unique_ptr<ExpertSource> source = expert_source(checkpoint, config, prefix);
    const ExpertMatrices matrices = source->expert(expert);
    const std::array<const MatrixSource*, 3> all{&matrices.gate, &matrices.up, &matrices.down};
    for (int projection : {kGate, kUp, kDown})
      dequantize(*all[static_cast<std::size_t>(projection)], rows_of(config, projection),
                 columns_of(config, projection), FormatSpec::mxfp4(), out[static_cast<std::size_t>(projection)].data());
    return;
  }
  const ProjectionNames names = projection_names(checkpoint, prefix);
  for (int projection : {kGate, kUp, kDown})
    read_linear_f32(checkpoint, config, names.module(prefix, expert, projection), rows_of(config, projection),
                    columns_of(config, projection), out[static_cast<std::size_t>(projection)]);
}

void read_expert_bias_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                          std::int64_t expert, const ExpertValues& values) {
  const std::array<std::span<float>, 3> out{values.gate, values.up, values.down};
  const bool fused = is_gpt_oss(checkpoint, prefix);
  for (int projection : {kGate, kUp, kDown}) {
    const std::span<float> biases = out[static_cast<std::size_t>(projection)];
    const StackedRows place = stacked_rows(config, prefix, projection);
    const std::string name = fused ? place.tensor + "_bias"
                                   : projection_names(checkpoint, prefix).module(prefix, expert, projection) + ".bias";
    const TensorInfo* tensor = checkpoint.find(name);
    check((tensor != nullptr) == !biases.empty(), ErrorCode::usage, "read_expert_bias_f32: '{}' is {}, the output {}",
          name, tensor == nullptr ? "absent" : "there", biases.empty() ? "empty" : "not");
    if (tensor == nullptr) continue;
    check_floats(checkpoint, *tensor);
    const std::int64_t rows = rows_of(config, projection);
    check(expert >= 0 && expert < config.experts && static_cast<std::int64_t>(biases.size()) == rows, ErrorCode::usage,
          "read_expert_bias_f32: expert {} of {}, {} outputs for {} rows", expert, config.experts, biases.size(), rows);
    if (fused)
      check_shape(checkpoint, *tensor, {config.experts, place.rows});
    else
      check_shape(checkpoint, *tensor, {rows});
    const TensorBytes bytes = checkpoint.read(name);
    const std::int64_t width = dtype_bits(tensor->dtype) / 8;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t element = fused ? expert * place.rows + place.first + place.step * row : row;
      biases[static_cast<std::size_t>(row)] = float_at(bytes.data(), tensor->dtype, element * width);
    }
  }
}

}  // namespace fourfold
