// From the tensors of a checkpoint to the experts of one layer, one expert at a time. Layouts: docs/formats.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fourfold/weights.h"
#include "model/checkpoint.h"
#include "model/hf_config.h"
#include "model/linear_reader.h"

namespace fourfold {

/// The experts of one layer, all stored alike.
struct ExpertLayerInfo {
  bool quantised = false;
  FormatSpec format;                 ///< when quantised
  DType source_dtype = DType::bf16;  ///< when not: bf16, f16, f32 or f8_e4m3 (block-scaled)
  WeightLayout layout = WeightLayout::plain;
  bool gate_up_bias = false, down_bias = false;
  std::string layout_name;  ///< for people: "nvfp4 (ModelOpt)", "none (BF16)"
};

/// `prefix` is what stands before ".0.up_proj" or ".gate_up_proj_blocks": "model.layers.3.mlp.experts". Sizes come from
/// config (experts, hidden, expert_intermediate). Every tensor of every expert is checked. Errors: as describe_linear,
/// and unsupported when the experts of the layer are not stored alike. Reads headers only.
ExpertLayerInfo describe_experts(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix);
/// Quantised experts in the form prepare_weights takes. Holds one expert at a time beyond mapped pages. `checkpoint`
/// must outlive it. Throws unsupported when the layer is not quantised; its expert() throws bad_input, naming the
/// tensor, for a global scale that is not a normal positive number, and for zero points that contradict the config.
std::unique_ptr<ExpertSource> expert_source(const Checkpoint& checkpoint, const ModelConfig& config,
                                            const std::string& prefix);
/// Where one expert's numbers go, row-major: matrices gate, up [expert_intermediate, hidden] and down [hidden,
/// expert_intermediate], or their biases, one number a row.
struct ExpertValues {
  std::span<float> gate, up, down;
};
/// One expert's matrices as fp32, from any layout. Throws usage for a span of another size, else as describe_experts.
void read_expert_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                     std::int64_t expert, const ExpertValues& values);
/// One expert's biases as fp32; a span whose bias is absent (see describe_experts) must be empty. Throws as above.
void read_expert_bias_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& prefix,
                          std::int64_t expert, const ExpertValues& values);

}  // namespace fourfold
