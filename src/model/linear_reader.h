// One linear layer of a checkpoint: decides per tensor what the bytes mean, and hands them over.
// Layouts: docs/formats.md. The decision comes from dtypes, shapes and the declared scheme, never from a name alone.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/quantize.h"
#include "fourfold/weights.h"
#include "model/checkpoint.h"
#include "model/hf_config.h"

namespace fourfold {

/// How one linear layer, or all experts of a layer, are stored.
enum class WeightLayout : std::uint8_t {
  plain,      ///< bf16, f16 or f32 [N, K]
  fp8_block,  ///< E4M3 [N, K], one fp32 scale per block of 128 x 128
  modelopt_nvfp4,
  compressed_nvfp4,
  compressed_mxfp4,
  compressed_int4,
  gptq,
  awq,
  gpt_oss_mxfp4,  ///< all experts in one tensor, gate and up rows interleaved
};
/// "plain", "fp8 block-scaled", "ModelOpt", "compressed-tensors", "GPTQ", "AWQ", "gpt-oss". Pure.
std::string_view weight_layout_name(WeightLayout layout) noexcept;

/// One linear layer `module` ("model.layers.0.mlp.experts.3.up_proj").
struct LinearInfo {
  WeightLayout layout = WeightLayout::plain;
  FormatSpec format;                 ///< when quantised()
  DType source_dtype = DType::bf16;  ///< of the weights when not quantised: bf16, f16, f32, f8_e4m3
  bool quantised() const noexcept { return layout != WeightLayout::plain && layout != WeightLayout::fp8_block; }
};

/// Decides how `module` with logical shape [rows, k] is stored, from what the file holds, and checks that against
/// config.quantization. Throws bad_input: tensors absent (all are listed), shape or dtype wrong, conflict with the
/// config; unsupported: act-order, gptq_v2, other bit widths, by name. Reads headers only.
LinearInfo describe_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                           std::int64_t rows, std::int64_t k);
/// The matrix as fp32 [rows, k], dequantised when it is quantised. For routers and dense layers of any layout.
/// Throws as describe_linear, and bad_input for a global scale that is refused.
void read_linear_f32(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                     std::int64_t rows, std::int64_t k, std::span<float> out);

// ---- for expert_reader ---------------------------------------------------------------------------------------

/// What a MatrixSource of a quantised layer points to: views of the mapping, copies, or a repacked matrix.
struct LinearBytes {
  TensorBytes codes, scales, bias;
  QuantizedMatrix repacked;
  MatrixSource source;
};
/// As describe_linear, but appends absent tensors to `absent` instead of throwing; the result then means nothing.
LinearInfo probe_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                        std::int64_t rows, std::int64_t k, std::vector<std::string>& absent);
/// The quantised layer that `info` describes, its bias if there is one. `source` stays valid when the result moves.
/// Throws bad_input.
LinearBytes read_linear(const Checkpoint& checkpoint, const ModelConfig& config, const std::string& module,
                        const LinearInfo& info, std::int64_t rows, std::int64_t k);
/// Rows and columns of a block of FP8 scales: the config's weight_block_size, or 128 x 128.
std::pair<std::int64_t, std::int64_t> fp8_block_of(const ModelConfig& config);
/// Throws bad_input unless the tensor has this shape.
void check_shape(const Checkpoint& checkpoint, const TensorInfo& tensor, std::initializer_list<std::int64_t> expected);
/// Throws bad_input unless `layout` is what config.quantization says of `module`. Unquantised layers always pass.
void check_declared(const ModelConfig& config, const std::string& module, WeightLayout layout);

}  // namespace fourfold
