// Which layout a linear layer has, and its bytes in the form of weights.h.
#include "model/linear_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "formats/dequantize.h"
#include "formats/expert_layouts.h"
#include "formats/format.h"
#include "model/message_text.h"

namespace fourfold {
namespace {

constexpr std::int64_t kFp8Block = 128;  // DeepSeek-V3's, when the config names none

/// The tensors that may belong to one module, null where absent.
struct Parts {
  const TensorInfo *weight, *weight_packed, *weight_scale, *weight_scale_2, *weight_global_scale, *weight_scale_inv,
      *weight_shape, *weight_zero_point, *qweight, *qzeros, *scales, *g_idx;
  Parts(const Checkpoint& c, const std::string& m)
      : weight(c.find(m + ".weight")),
        weight_packed(c.find(m + ".weight_packed")),
        weight_scale(c.find(m + ".weight_scale")),
        weight_scale_2(c.find(m + ".weight_scale_2")),
        weight_global_scale(c.find(m + ".weight_global_scale")),
        weight_scale_inv(c.find(m + ".weight_scale_inv")),
        weight_shape(c.find(m + ".weight_shape")),
        weight_zero_point(c.find(m + ".weight_zero_point")),
        qweight(c.find(m + ".qweight")),
        qzeros(c.find(m + ".qzeros")),
        scales(c.find(m + ".scales")),
        g_idx(c.find(m + ".g_idx")) {}
};

void check_dtype(const Checkpoint& checkpoint, const TensorInfo& tensor, std::initializer_list<DType> allowed) {
  std::string names;
  for (DType dtype : allowed) names += (names.empty() ? "" : " or ") + std::string(dtype_name(dtype));
  check(std::find(allowed.begin(), allowed.end(), tensor.dtype) != allowed.end(), ErrorCode::bad_input,
        "{}: tensor '{}' has dtype {}; expected is {}", checkpoint.path(), tensor.name, dtype_name(tensor.dtype),
        names);
}

void check_one_element(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  check_dtype(checkpoint, tensor, {DType::f32});
  check(tensor.bytes == 4, ErrorCode::bad_input, "{}: tensor '{}' has shape {}; expected is one number",
        checkpoint.path(), tensor.name, shape_text(tensor.shape));
}

/// The group size along the rows of this layer: the config's, or what the columns of the scales leave no choice about.
std::int64_t group_size_of(const Checkpoint& checkpoint, const ModelConfig& config, const TensorInfo& scales,
                           std::int64_t groups, std::int64_t k) {
  std::int64_t group = config.quantization ? config.quantization->group_size : -1;
  if (group == -1) {
    check(groups > 0 && k % groups == 0, ErrorCode::bad_input,
          "{}: tensor '{}': {} groups do not divide {} columns and the config names no group size", checkpoint.path(),
          scales.name, groups, k);
    group = groups == 1 ? 0 : k / groups;
  }
  const std::int64_t expected = group == 0 ? 1 : ceil_div(k, group);
  check(groups == expected, ErrorCode::bad_input,
        "{}: tensor '{}' has {} groups a row; {} columns in groups of {} need {}", checkpoint.path(), scales.name,
        groups, k, group == 0 ? k : group, expected);
  return group;
}

FormatSpec int4_spec(const Checkpoint& checkpoint, const std::string& module, std::int64_t group, bool zeros) {
  const FormatSpec spec = FormatSpec::int4(group, zeros);
  const std::string refusal = format_refusal(spec);
  check(refusal.empty(), ErrorCode::unsupported, "{}: '{}': {}", checkpoint.path(), module, refusal);
  return spec;
}

void check_bits(const ModelConfig& config, const std::string& module) {
  const std::int64_t bits = config.quantization ? config.quantization->bits : 0;
  check(bits == 0 || bits == 4, ErrorCode::unsupported, "{}: '{}' has {} bits; 4 are supported",
        config.quantization ? config.quantization->file : config.file, module, bits);
}

std::int64_t last_extent(const TensorInfo& tensor) { return tensor.shape.empty() ? 0 : tensor.shape.back(); }
std::int64_t first_extent(const TensorInfo& tensor) { return tensor.shape.empty() ? 0 : tensor.shape.front(); }

/// The layer that a probe looks at: `module` with logical shape [rows, k].
struct Linear {
  const Checkpoint& checkpoint;
  const ModelConfig& config;
  const std::string& module;
  std::int64_t rows, k;
};

LinearInfo probe_packed(const Linear& linear, const Parts& parts, std::vector<std::string>& absent) {
  const auto& [checkpoint, config, module, rows, k] = linear;
  LinearInfo info;
  check_dtype(checkpoint, *parts.weight_packed, {DType::u8, DType::i32});
  if (parts.weight_scale == nullptr) {
    absent.push_back(module + ".weight_scale");
    return info;
  }
  if (parts.weight_packed->dtype == DType::i32) {
    info.layout = WeightLayout::compressed_int4;
    check_bits(config, module);
    check_dtype(checkpoint, *parts.weight_scale, {DType::bf16, DType::f16, DType::f32});
    check_shape(checkpoint, *parts.weight_packed, {rows, ceil_div(k, 8)});
    const std::int64_t groups = last_extent(*parts.weight_scale);
    const std::int64_t group = group_size_of(checkpoint, config, *parts.weight_scale, groups, k);
    check_shape(checkpoint, *parts.weight_scale, {rows, groups});
    const bool symmetric = config.quantization ? config.quantization->symmetric : parts.weight_zero_point == nullptr;
    if (!symmetric && parts.weight_zero_point == nullptr) absent.push_back(module + ".weight_zero_point");
    check(!symmetric || parts.weight_zero_point == nullptr, ErrorCode::bad_input,
          "{}: tensor '{}.weight_zero_point' is there although the config says symmetric", checkpoint.path(), module);
    if (parts.weight_zero_point != nullptr) {
      check_dtype(checkpoint, *parts.weight_zero_point, {DType::i32});
      check_shape(checkpoint, *parts.weight_zero_point, {ceil_div(rows, 8), groups});
    }
    if (parts.weight_shape != nullptr) {
      check_dtype(checkpoint, *parts.weight_shape, {DType::i64, DType::i32});
      check_shape(checkpoint, *parts.weight_shape, {2});
    }
    check(!checkpoint.contains(module + ".weight_g_idx"), ErrorCode::unsupported,
          "{}: '{}' was quantised with act-order (weight_g_idx); only groups in order are supported", checkpoint.path(),
          module);
    info.format = int4_spec(checkpoint, module, group, !symmetric);
    return info;
  }
  check_shape(checkpoint, *parts.weight_packed, {rows, k / 2});
  check_dtype(checkpoint, *parts.weight_scale, {DType::f8_e4m3, DType::u8, DType::f8_e8m0});
  if (parts.weight_scale->dtype == DType::f8_e4m3) {
    info.layout = WeightLayout::compressed_nvfp4;
    info.format = FormatSpec::nvfp4();
    check_shape(checkpoint, *parts.weight_scale, {rows, groups_per_row(info.format, k)});
    if (parts.weight_global_scale == nullptr)
      absent.push_back(module + ".weight_global_scale");
    else
      check_one_element(checkpoint, *parts.weight_global_scale);
  } else {
    info.layout = WeightLayout::compressed_mxfp4;
    info.format = FormatSpec::mxfp4();
    check_shape(checkpoint, *parts.weight_scale, {rows, groups_per_row(info.format, k)});
  }
  return info;
}

/// GPTQ packs along the reduction axis, AWQ along the outputs: the shape of qweight tells them apart.
LinearInfo probe_qweight(const Linear& linear, const Parts& parts, std::vector<std::string>& absent) {
  const auto& [checkpoint, config, module, rows, k] = linear;
  LinearInfo info;
  check_bits(config, module);
  check_dtype(checkpoint, *parts.qweight, {DType::i32});
  const bool gptq = parts.qweight->shape == std::vector<std::int64_t>{k / 8, rows};
  const bool awq = parts.qweight->shape == std::vector<std::int64_t>{k, rows / 8};
  check(rows % 8 == 0 && (awq || k % 8 == 0) && gptq != awq, ErrorCode::bad_input,
        "{}: tensor '{}' has shape {}; expected is [{}, {}] (GPTQ) or [{}, {}] (AWQ) for a matrix of {} x {}",
        checkpoint.path(), parts.qweight->name, shape_text(parts.qweight->shape), k / 8, rows, k, rows / 8, rows, k);
  info.layout = gptq ? WeightLayout::gptq : WeightLayout::awq;
  const bool symmetric = config.quantization && config.quantization->symmetric;
  if (parts.scales == nullptr) absent.push_back(module + ".scales");
  if (parts.qzeros == nullptr && !symmetric) absent.push_back(module + ".qzeros");
  if (parts.scales == nullptr) return info;
  check_dtype(checkpoint, *parts.scales, {DType::f16, DType::bf16, DType::f32});
  const std::int64_t groups = first_extent(*parts.scales);
  const std::int64_t group = group_size_of(checkpoint, config, *parts.scales, groups, k);
  check_shape(checkpoint, *parts.scales, {groups, rows});
  if (parts.qzeros != nullptr) {
    check_dtype(checkpoint, *parts.qzeros, {DType::i32});
    check_shape(checkpoint, *parts.qzeros, {groups, rows / 8});
  }
  if (config.quantization) {
    const QuantizationConfig& declared = *config.quantization;
    check(!declared.act_order || parts.g_idx != nullptr, ErrorCode::unsupported,
          "{}: 'desc_act' is true and '{}' has no g_idx; act-order is not supported", declared.file, module);
    const std::string& version = declared.checkpoint_format;
    check(version.empty() || (gptq ? version == "gptq" || version == "gptq_v2" : version == "gemm"),
          ErrorCode::unsupported, "{}: packing '{}' is not supported; known are gptq, gptq_v2 and (AWQ) gemm",
          declared.file, version);
  }
  info.format = int4_spec(checkpoint, module, group, !symmetric);
  return info;
}

LinearInfo probe_weight(const Linear& linear, const Parts& parts, std::vector<std::string>& absent) {
  const auto& [checkpoint, config, module, rows, k] = linear;
  LinearInfo info;
  info.source_dtype = parts.weight->dtype;
  check_dtype(checkpoint, *parts.weight, {DType::bf16, DType::f16, DType::f32, DType::f8_e4m3, DType::u8});
  if (parts.weight->dtype == DType::u8) {
    info.layout = WeightLayout::modelopt_nvfp4;
    info.format = FormatSpec::nvfp4();
    check_shape(checkpoint, *parts.weight, {rows, k / 2});
    if (parts.weight_scale == nullptr) absent.push_back(module + ".weight_scale");
    if (parts.weight_scale_2 == nullptr) absent.push_back(module + ".weight_scale_2");
    if (parts.weight_scale != nullptr) {
      check_dtype(checkpoint, *parts.weight_scale, {DType::f8_e4m3});
      check_shape(checkpoint, *parts.weight_scale, {rows, groups_per_row(info.format, k)});
    }
    if (parts.weight_scale_2 != nullptr) check_one_element(checkpoint, *parts.weight_scale_2);
    return info;
  }
  check_shape(checkpoint, *parts.weight, {rows, k});
  if (parts.weight->dtype != DType::f8_e4m3) return info;
  info.layout = WeightLayout::fp8_block;
  const TensorInfo* scale = parts.weight_scale_inv != nullptr ? parts.weight_scale_inv : parts.weight_scale;
  if (scale == nullptr) {
    absent.push_back(module + ".weight_scale_inv");
    return info;
  }
  check_dtype(checkpoint, *scale, {DType::f32, DType::bf16});
  const auto [block_rows, block_columns] = fp8_block_of(config);
  check_shape(checkpoint, *scale, {ceil_div(rows, block_rows), ceil_div(k, block_columns)});
  return info;
}

/// One fp32 number that multiplies a whole matrix. An expert that calibration never saw has none, or 0.
float read_global(const Checkpoint& checkpoint, const std::string& name, bool reciprocal) {
  float stored = 0;
  checkpoint.read_range(name, 0, std::as_writable_bytes(std::span(&stored, 1)));
  const float value = reciprocal ? 1.0f / stored : stored;
  check(std::isnormal(stored) && stored > 0 && std::isnormal(value), ErrorCode::bad_input,
        "{}: tensor '{}' is {}; a global scale{} must be a normal positive number of fp32", checkpoint.path(), name,
        stored, reciprocal ? " and its reciprocal" : "");
  return value;
}

ConstTensorView view_or_absent(const Checkpoint& checkpoint, const TensorInfo* tensor, TensorBytes& holder) {
  if (tensor == nullptr) return {};
  holder = checkpoint.read(tensor->name);
  return holder.view();
}

QuantizedMatrix repack(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                       const LinearInfo& info, std::int64_t rows, std::int64_t k) {
  const Parts parts(checkpoint, module);
  std::array<TensorBytes, 4> held;
  QuantizedMatrix matrix;
  const std::string name = checkpoint.path() + ": '" + module + "'";
  if (info.layout == WeightLayout::compressed_int4) {
    matrix = from_compressed_int4({view_or_absent(checkpoint, parts.weight_packed, held[0]),
                                   view_or_absent(checkpoint, parts.weight_scale, held[1]),
                                   view_or_absent(checkpoint, parts.weight_zero_point, held[2]),
                                   view_or_absent(checkpoint, parts.weight_shape, held[3])},
                                  info.format.group_size, name);
  } else if (info.layout == WeightLayout::gptq) {
    const bool plain = config.quantization && config.quantization->checkpoint_format == "gptq_v2";
    matrix = from_gptq(
        {view_or_absent(checkpoint, parts.qweight, held[0]), view_or_absent(checkpoint, parts.qzeros, held[1]),
         view_or_absent(checkpoint, parts.scales, held[2]), view_or_absent(checkpoint, parts.g_idx, held[3])},
        info.format.group_size, plain ? GptqZeros::plain : GptqZeros::minus_one, name);
  } else {
    matrix =
        from_awq({view_or_absent(checkpoint, parts.qweight, held[0]), view_or_absent(checkpoint, parts.qzeros, held[1]),
                  view_or_absent(checkpoint, parts.scales, held[2])},
                 info.format.group_size, name);
  }
  if (!info.format.zero_points && matrix.spec.zero_points)
    check(drop_symmetric_zero_points(matrix), ErrorCode::bad_input,
          "{}: a zero point differs from 8 although the config says symmetric", name);
  check(matrix.rows == rows && matrix.k == k && matrix.spec == info.format, ErrorCode::bad_input,
        "{}: holds a matrix of {} x {}; expected is {} x {}", name, matrix.rows, matrix.k, rows, k);
  return matrix;
}

std::optional<std::string> declared_conflict(const QuantizationConfig& declared, WeightLayout layout) {
  const auto format_is = [&](std::string_view name) {
    return declared.method == "compressed-tensors" &&
           (declared.format == name || declared.format.empty() || declared.format == "mixed-precision");
  };
  bool ok = false;
  switch (layout) {
    case WeightLayout::plain:
      ok = true;
      break;
    case WeightLayout::fp8_block:
      ok = declared.method == "fp8" || format_is("float-quantized");
      break;
    case WeightLayout::modelopt_nvfp4:
      ok = declared.method.starts_with("modelopt") && declared.format.find("NVFP4") != std::string::npos &&
           (declared.group_size == -1 || declared.group_size == 16);
      break;
    case WeightLayout::compressed_nvfp4:
      ok = format_is("nvfp4-pack-quantized") && (declared.group_size == -1 || declared.group_size == 16);
      break;
    case WeightLayout::compressed_mxfp4:
      ok = format_is("mxfp4-pack-quantized") && (declared.group_size == -1 || declared.group_size == 32);
      break;
    case WeightLayout::compressed_int4:
      ok = format_is("pack-quantized");
      break;
    case WeightLayout::gptq:
      ok = declared.method == "gptq";
      break;
    case WeightLayout::awq:
      ok = declared.method == "awq";
      break;
    case WeightLayout::gpt_oss_mxfp4:
      ok = declared.method == "mxfp4";
      break;
  }
  if (ok) return std::nullopt;
  return fmt::format("method '{}', format '{}', group size {}", declared.method, declared.format, declared.group_size);
}

}  // namespace

std::pair<std::int64_t, std::int64_t> fp8_block_of(const ModelConfig& config) {
  if (config.quantization && config.quantization->weight_block_size.size() == 2)
    return {config.quantization->weight_block_size[0], config.quantization->weight_block_size[1]};
  return {kFp8Block, kFp8Block};
}

std::string_view weight_layout_name(WeightLayout layout) noexcept {
  switch (layout) {
    case WeightLayout::plain:
      return "plain";
    case WeightLayout::fp8_block:
      return "fp8 block-scaled";
    case WeightLayout::modelopt_nvfp4:
      return "ModelOpt";
    case WeightLayout::compressed_nvfp4:
    case WeightLayout::compressed_mxfp4:
    case WeightLayout::compressed_int4:
      return "compressed-tensors";
    case WeightLayout::gptq:
      return "GPTQ";
    case WeightLayout::awq:
      return "AWQ";
    case WeightLayout::gpt_oss_mxfp4:
      return "gpt-oss";
  }
  return "unknown";
}

void check_shape(const Checkpoint& checkpoint, const TensorInfo& tensor, std::initializer_list<std::int64_t> expected) {
  check(std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end()), ErrorCode::bad_input,
        "{}: tensor '{}' has shape {}; expected is {}", checkpoint.path(), tensor.name, shape_text(tensor.shape),
        shape_text(std::vector<std::int64_t>(expected)));
}

void check_declared(const ModelConfig& config, const std::string& module, WeightLayout layout) {
  if (layout == WeightLayout::plain) return;
  check(config.quantization.has_value(), ErrorCode::bad_input,
        "{}: '{}' is stored as {}, but neither quantization_config nor hf_quant_config.json says so", config.file,
        module, weight_layout_name(layout));
  check(!config.quantization->ignores(module), ErrorCode::bad_input,
        "{}: '{}' is on the list of modules that are not quantised, but is stored as {}", config.quantization->file,
        module, weight_layout_name(layout));
  const std::optional<std::string> conflict = declared_conflict(*config.quantization, layout);
  check(!conflict, ErrorCode::bad_input, "{}: says {}, but '{}' is stored as {}", config.quantization->file,
        conflict.value_or(""), module,
        layout == WeightLayout::compressed_nvfp4   ? "compressed-tensors nvfp4"
        : layout == WeightLayout::compressed_mxfp4 ? "compressed-tensors mxfp4"
        : layout == WeightLayout::compressed_int4  ? "compressed-tensors int4"
        : layout == WeightLayout::modelopt_nvfp4   ? "ModelOpt nvfp4"
                                                   : weight_layout_name(layout));
}

LinearInfo probe_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                        std::int64_t rows, std::int64_t k, std::vector<std::string>& absent) {
  check(rows > 0 && k > 0 && k % 2 == 0, ErrorCode::bad_input, "{}: '{}' is {} x {}; expected is an even row length",
        config.file, module, rows, k);
  const Parts parts(checkpoint, module);
  const int kinds = (parts.weight != nullptr) + (parts.weight_packed != nullptr) + (parts.qweight != nullptr);
  check(kinds <= 1, ErrorCode::bad_input,
        "{}: '{}' has more than one of weight, weight_packed and qweight; which one counts is ambiguous",
        checkpoint.path(), module);
  const Linear linear{checkpoint, config, module, rows, k};
  LinearInfo info;
  if (parts.weight_packed != nullptr) {
    info = probe_packed(linear, parts, absent);
  } else if (parts.qweight != nullptr) {
    info = probe_qweight(linear, parts, absent);
  } else if (parts.weight != nullptr) {
    info = probe_weight(linear, parts, absent);
  } else {
    const bool scaled = parts.weight_scale != nullptr || parts.scales != nullptr;
    absent.push_back(module + (parts.scales != nullptr                     ? ".qweight"
                               : scaled && parts.weight_scale_2 == nullptr ? ".weight_packed"
                                                                           : ".weight"));
    return info;
  }
  check_declared(config, module, info.layout);
  return info;
}

LinearInfo describe_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                           std::int64_t rows, std::int64_t k) {
  std::vector<std::string> absent;
  const LinearInfo info = probe_linear(checkpoint, config, module, rows, k, absent);
  check(absent.empty(), ErrorCode::bad_input, "{}: tensors are absent: {}", checkpoint.path(), listed(absent));
  return info;
}

LinearBytes read_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                        const LinearInfo& info, std::int64_t rows, std::int64_t k) {
  LinearBytes bytes;
  if (info.layout == WeightLayout::compressed_int4 || info.layout == WeightLayout::gptq ||
      info.layout == WeightLayout::awq) {
    bytes.repacked = repack(checkpoint, config, module, info, rows, k);
    bytes.source = bytes.repacked.source();
  } else {
    const bool modelopt = info.layout == WeightLayout::modelopt_nvfp4;
    bytes.codes = checkpoint.read(module + (modelopt ? ".weight" : ".weight_packed"));
    bytes.scales = checkpoint.read(module + ".weight_scale");
    bytes.source.codes = bytes.codes.as<std::uint8_t>();
    bytes.source.codes_row_bytes = k / 2;
    bytes.source.scales = bytes.scales.data();
    bytes.source.scale_dtype = bytes.scales.dtype();
    bytes.source.scales_row_bytes = groups_per_row(info.format, k);
    if (modelopt) bytes.source.global_scale = read_global(checkpoint, module + ".weight_scale_2", false);
    if (info.layout == WeightLayout::compressed_nvfp4)
      bytes.source.global_scale = read_global(checkpoint, module + ".weight_global_scale", true);
  }
  if (const TensorInfo* bias = checkpoint.find(module + ".bias")) {
    check_dtype(checkpoint, *bias, {DType::bf16, DType::f16, DType::f32});
    check_shape(checkpoint, *bias, {rows});
    bytes.bias = checkpoint.read(bias->name);
    bytes.source.bias = bytes.bias.data();
    bytes.source.bias_dtype = bias->dtype;
    bytes.source.bias_stride_bytes = dtype_bits(bias->dtype) / 8;
  }
  return bytes;
}

void read_linear_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                     std::int64_t rows, std::int64_t k, std::span<float> out) {
  const LinearInfo info = describe_linear(checkpoint, config, module, rows, k);
  check(static_cast<std::int64_t>(out.size()) == checked_mul(rows, k, "read_linear_f32"), ErrorCode::usage,
        "read_linear_f32: '{}' has {} x {} elements, the output {}", module, rows, k, out.size());
  if (info.layout == WeightLayout::plain) {
    checkpoint.read_f32(module + ".weight", out);
  } else if (info.layout == WeightLayout::fp8_block) {
    const bool inverse = checkpoint.contains(module + ".weight_scale_inv");
    const TensorBytes weight = checkpoint.read(module + ".weight");
    const TensorBytes scale = checkpoint.read(module + (inverse ? ".weight_scale_inv" : ".weight_scale"));
    const auto [block_rows, block_columns] = fp8_block_of(config);
    dequantize_fp8_blocks(weight.view(), scale.view(), block_rows, block_columns, out, module);
  } else {
    const LinearBytes bytes = read_linear(checkpoint, config, module, info, rows, k);
    dequantize(bytes.source, rows, k, info.format, out.data());
  }
}

}  // namespace fourfold
