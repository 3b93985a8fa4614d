// fourfold::inspect_checkpoint: what a checkpoint holds, from its headers and configs.
#include <algorithm>
#include <map>
#include <set>

#include "core/check.h"
#include "fourfold/model.h"
#include "model/checkpoint.h"
#include "model/expert_reader.h"
#include "model/hf_config.h"

namespace fourfold {
namespace {

constexpr std::string_view kExperts = ".experts.";

/// "model.layers.0.mlp.experts" for every layer with experts.
std::set<std::string> expert_prefixes(const Checkpoint& checkpoint) {
  std::set<std::string> prefixes;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const std::size_t at = tensor.name.find(kExperts);
    if (at != std::string::npos) prefixes.insert(tensor.name.substr(0, at + kExperts.size() - 1));
  }
  return prefixes;
}

/// The dtype with the most bytes among the tensors that `counts`.
template <class Predicate>
std::string largest_dtype(const Checkpoint& checkpoint, Predicate counts) {
  std::map<DType, std::uint64_t> bytes;
  for (const TensorInfo& tensor : checkpoint.tensors())
    if (counts(tensor)) bytes[tensor.dtype] += tensor.bytes;
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "no tensors" : std::string(dtype_name(most->first));
}

/// Without a config that describes them, names and dtypes are all there is to go by.
std::string layout_by_names(const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.name.ends_with(".weight_scale_2")) return "nvfp4 (ModelOpt), by its tensor names";
    if (tensor.name.ends_with(".weight_global_scale")) return "nvfp4 (compressed-tensors), by its tensor names";
    if (tensor.name.ends_with("_proj_blocks")) return "mxfp4 (gpt-oss), by its tensor names";
    if (tensor.name.ends_with(".qweight")) return "int4 (GPTQ or AWQ), by its tensor names";
    if (tensor.name.ends_with(".weight_packed"))
      return tensor.dtype == DType::i32 ? "int4 (compressed-tensors), by its tensor names"
                                        : "4-bit float (compressed-tensors), by its tensor names";
  }
  const bool experts = !expert_prefixes(checkpoint).empty();
  return fmt::format("none ({})", largest_dtype(checkpoint, [&](const TensorInfo& tensor) {
                       return !experts || tensor.name.find(kExperts) != std::string::npos;
                     }));
}

std::string quantization_text(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::vector<std::string> layouts;
  try {
    for (const std::string& prefix : expert_prefixes(checkpoint)) {
      const std::string layout = describe_experts(checkpoint, config, prefix).layout_name;
      if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(layout);
    }
  } catch (const Error&) {
    // Looking at a file must work where running it would not.
    return layout_by_names(checkpoint);
  }
  if (layouts.empty()) return layout_by_names(checkpoint);
  std::string text;
  for (const std::string& layout : layouts) text += (text.empty() ? "" : "; ") + layout;
  return text;
}

}  // namespace

CheckpointInfo inspect_checkpoint(const std::string& path) {
  const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(path, false);
  CheckpointInfo info;
  info.path = path;
  info.has_config = checkpoint->is_folder() && has_model_config(path);
  info.tensors = checkpoint->tensors();
  std::map<DType, std::uint64_t> bytes;
  for (const TensorInfo& tensor : info.tensors) {
    info.total_bytes += tensor.bytes;
    if (tensor.name.find(kExperts) != std::string::npos) info.expert_bytes += tensor.bytes;
    bytes[tensor.dtype] += tensor.bytes;
  }
  for (const auto& [dtype, count] : bytes) info.bytes_by_dtype.emplace_back(std::string(dtype_name(dtype)), count);
  std::stable_sort(info.bytes_by_dtype.begin(), info.bytes_by_dtype.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (!info.has_config) {
    info.quantization = layout_by_names(*checkpoint);
    return info;
  }
  const ModelConfig config = load_model_config(path);
  info.architecture = config.architecture;
  info.layers = config.layers;
  info.hidden = config.hidden;
  info.vocabulary = config.vocabulary;
  info.experts = config.experts;
  info.top_k = config.top_k;
  info.expert_intermediate = config.expert_intermediate;
  info.quantization = quantization_text(*checkpoint, config);
  return info;
}

}  // namespace fourfold
