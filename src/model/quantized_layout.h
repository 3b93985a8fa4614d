// How a quantised matrix is written: tensors, dtypes and the config that says so, for each layout that has a writer.
// Source: ModelOpt's NVFP4 export; compressed-tensors (nvfp4-pack-quantized, mxfp4-pack-quantized, pack-quantized).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/quantize.h"
#include "fourfold/model.h"
#include "model/checkpoint_writer.h"

namespace fourfold {

/// Tensors of the matrix `module` [rows, k], in the order of quantized_bytes. Pure.
std::vector<PlannedTensor> quantized_tensors(const std::string& module, std::int64_t rows, std::int64_t k,
                                             const FormatSpec& spec, CheckpointLayout layout);
/// The bytes of those tensors.
std::vector<std::vector<std::byte>> quantized_bytes(const QuantizedMatrix& matrix, CheckpointLayout layout);
/// The fp32 reciprocal r that compressed-tensors stores for a global scale: readers use 1 / r, rounded to fp32. Where
/// an r within one unit of 1 / global gives exactly `global`, that one; else the nearest fp32 to 1 / global. Pure.
float reciprocal_global(float global);
/// The global scale that a reader of `layout` reconstructs. Pure.
float read_back_global(float global, CheckpointLayout layout);
/// "quantization_config" for config.json. `ignored` names the linear layers that are not quantised.
nlohmann::ordered_json quantization_config_json(const FormatSpec& spec, CheckpointLayout layout,
                                                const std::vector<std::string>& ignored);
/// hf_quant_config.json, ModelOpt only.
nlohmann::ordered_json hf_quant_config_json(const std::vector<std::string>& ignored);

}  // namespace fourfold
