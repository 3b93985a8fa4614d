// From the tensors of a checkpoint to the experts of one layer: decides per tensor what the bytes mean.
// Layouts: docs/formats.md. The decision comes from dtypes, shapes and the declared scheme, never from a name alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fourfold/weights.h"
#include "model/checkpoint.h"
#include "model/hf_config.h"

namespace fourfold {

/// How one linear layer, or all experts of a layer, are stored.
enum class WeightLayout : std::uint8_t {
  plain,           ///< bf16, f16 or f32 [N, K]
  fp8_block,       ///< E4M3 [N, K], one fp32 scale per block of 128 x 128
  modelopt_nvfp4,
  compressed_nvfp4,
  compressed_mxfp4,
  compressed_int4,
  gptq,
  awq,
  gpt_oss_mxfp4,   ///< all experts in one tensor, gate and up rows interleaved
};
/// "plain", "fp8 block-scaled", "ModelOpt", "compressed-tensors", "GPTQ", "AWQ", "gpt-oss". Pure.
std::string_view weight_layout_name(WeightLayout layout) noexcept;

/// One linear layer `module` ("model.layers.0.mlp.experts.3.up_proj").
struct LinearInfo {
  WeightLayout layout = WeightLayout::plain;
  FormatSpec format;                   ///< when quantised()
  DType source_dtype = DType::bf16;    ///< of the weights when not quantised: bf16, f16, f32, f8_e4m3
  bool quantised() const noexcept { return layout != WeightLayout::plain && layout != WeightLayout::fp8_block; }
};

/// Decides how `module` with logical shape [rows, k] is stored, from what the file holds, and checks that against
/// config.quantization. Throws bad_input: tensors absent (all are listed), shape or dtype wrong, conflict with the config;
/// unsupported: act-order, gptq_v2, other bit widths, by name. Reads headers only.
LinearInfo describe_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                           std::int64_t rows, std::int64_t k);
/// The matrix as fp32 [rows, k], dequantised when it is quantised. For routers and dense layers of any layout.
/// Throws as describe_linear, and bad_input for a global scale that is refused.
void read_linear_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                     std::int64_t rows, std::int64_t k, std::span<float> out);

/// The experts of one layer, all stored alike.
struct ExpertLayerInfo {
  bool quantised = false;
  FormatSpec format;                   ///< when quantised
  DType source_dtype = DType::bf16;    ///< when not: bf16, f16, f32 or f8_e4m3 (block-scaled)
  WeightLayout layout = WeightLayout::plain;
  bool gate_up_bias = false, down_bias = false;
  std::string layout_name;             ///< for people: "nvfp4 (ModelOpt)", "none (BF16)"
};

/// `prefix` is what stands before ".0.up_proj" or ".gate_up_proj_blocks": "model.layers.3.mlp.experts". Sizes come from
/// config (experts, hidden, expert_intermediate). Every tensor of every expert is checked. Errors: as describe_linear, and
/// unsupported when the experts of the layer are not stored alike. Reads headers only.
ExpertLayerInfo describe_experts(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix);
/// Quantised experts in the form prepare_weights takes. Holds one expert at a time beyond mapped pages. `checkpoint`
/// must outlive it. Throws unsupported when the layer is not quantised; its expert() throws bad_input, naming the tensor,
/// for a global scale that is not a normal positive number, and for zero points that contradict the config.
std::unique_ptr<ExpertSource> expert_source(const Checkpoint& checkpoint, const ModelConfig& config,
                                            const std::string& prefix);
/// One expert as fp32, from any layout: gate, up [expert_intermediate, hidden], down [hidden, expert_intermediate].
void read_expert_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                     std::int64_t expert, std::span<float> gate, std::span<float> up, std::span<float> down);
/// One expert's biases as fp32; a span whose bias is absent (see describe_experts) must be empty.
void read_expert_bias_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                          std::int64_t expert, std::span<float> gate, std::span<float> up, std::span<float> down);

}  // namespace fourfold
