// Names, dtypes and shapes of the written layouts, and their configs.
#include "model/quantized_layout.h"

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "formats/expert_layouts.h"

namespace fourfold {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Json weights_scheme(const FormatSpec& spec) {
  Json weights = {{"num_bits", 4}};
  weights["type"] = spec.format == WeightFormat::int4 ? "int" : "float";
  weights["symmetric"] = !spec.zero_points;
  if (spec.format == WeightFormat::nvfp4)
    weights["strategy"] = "tensor_group";
  else
    weights["strategy"] = spec.group_size == 0 ? "channel" : "group";
  weights["group_size"] = spec.group_size == 0 ? Json(nullptr) : Json(spec.group_size);
  weights["dynamic"] = false;
  weights["actorder"] = nullptr;
  if (spec.format == WeightFormat::nvfp4) weights["scale_dtype"] = "torch.float8_e4m3fn";
  if (spec.format == WeightFormat::mxfp4) weights["scale_dtype"] = "torch.uint8";
  return weights;
}

}  // namespace

std::vector<PlannedTensor> quantized_tensors(const std::string& module, std::int64_t rows, std::int64_t k,
                                             const FormatSpec& spec, CheckpointLayout layout) {
  const std::int64_t groups = groups_per_row(spec, k);
  if (spec.format == WeightFormat::nvfp4 && layout == CheckpointLayout::modelopt)
    return {{module + ".weight_scale_2", DType::f32, {}},
            {module + ".weight_scale", DType::f8_e4m3, {rows, groups}},
            {module + ".weight", DType::u8, {rows, k / 2}}};
  if (spec.format == WeightFormat::nvfp4)
    return {{module + ".weight_global_scale", DType::f32, {1}},
            {module + ".weight_scale", DType::f8_e4m3, {rows, groups}},
            {module + ".weight_packed", DType::u8, {rows, k / 2}}};
  if (spec.format == WeightFormat::mxfp4)
    return {{module + ".weight_scale", DType::u8, {rows, groups}},
            {module + ".weight_packed", DType::u8, {rows, k / 2}}};
  std::vector<PlannedTensor> tensors{{module + ".weight_shape", DType::i64, {2}},
                                     {module + ".weight_packed", DType::i32, {rows, ceil_div(k, 8)}}};
  if (spec.zero_points) tensors.push_back({module + ".weight_zero_point", DType::i32, {ceil_div(rows, 8), groups}});
  tensors.push_back({module + ".weight_scale", DType::bf16, {rows, groups}});
  return tensors;
}

std::vector<std::vector<std::byte>> quantized_bytes(const QuantizedMatrix& matrix, CheckpointLayout layout) {
  if (matrix.spec.format == WeightFormat::int4) {
    std::vector<std::vector<std::byte>> bytes{bytes_of(std::vector<std::int64_t>{matrix.rows, matrix.k}),
                                              bytes_of(compressed_int4_codes(matrix))};
    if (matrix.spec.zero_points) bytes.push_back(bytes_of(compressed_int4_zeros(matrix)));
    bytes.push_back(bytes_of(matrix.scales));
    return bytes;
  }
  if (matrix.spec.format == WeightFormat::mxfp4) return {bytes_of(matrix.scales), bytes_of(matrix.codes)};
  const float global =
      layout == CheckpointLayout::modelopt ? matrix.global_scale : reciprocal_global(matrix.global_scale);
  return {bytes_of(std::vector<float>{global}), bytes_of(matrix.scales), bytes_of(matrix.codes)};
}

float reciprocal_global(float global) {
  const float nearest = 1.0f / global;
  for (float candidate : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, INFINITY)})
    if (1.0f / candidate == global) return candidate;
  return nearest;
}

float read_back_global(float global, CheckpointLayout layout) {
  return layout == CheckpointLayout::modelopt ? global : 1.0f / reciprocal_global(global);
}

nlohmann::ordered_json quantization_config_json(const FormatSpec& spec, CheckpointLayout layout,
                                                const std::vector<std::string>& ignored) {
  Json group = {{"targets", {"Linear"}}};
  group["weights"] = weights_scheme(spec);
  group["input_activations"] = nullptr;
  group["output_activations"] = nullptr;
  Json config = Json::object();
  if (layout == CheckpointLayout::modelopt) {
    config["quant_method"] = "modelopt";
    config["quant_algo"] = "NVFP4";
    config["group_size"] = spec.group_size;
    config["kv_cache_scheme"] = nullptr;
  } else {
    config["quant_method"] = "compressed-tensors";
    config["format"] = spec.format == WeightFormat::nvfp4   ? "nvfp4-pack-quantized"
                       : spec.format == WeightFormat::mxfp4 ? "mxfp4-pack-quantized"
                                                            : "pack-quantized";
    config["quantization_status"] = "compressed";
    config["kv_cache_scheme"] = nullptr;
  }
  config["config_groups"]["group_0"] = group;
  config["ignore"] = ignored;
  return config;
}

nlohmann::ordered_json hf_quant_config_json(const std::vector<std::string>& ignored) {
  Json root = Json::object();
  root["producer"] = {{"name", "fourfold"}};
  root["quantization"]["quant_algo"] = "NVFP4";
  root["quantization"]["kv_cache_quant_algo"] = nullptr;
  root["quantization"]["group_size"] = 16;
  root["quantization"]["exclude_modules"] = ignored;
  return root;
}

}  // namespace fourfold
