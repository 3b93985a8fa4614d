// What a checkpoint says about its quantised layers, from each of the schemas that are in use.
// Source: transformers (quantization_config of gptq, awq, mxfp4, fp8), compressed-tensors, ModelOpt
// (hf_quant_config.json).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/hf_config.h"

namespace fourfold {

/// The entries of an ignore list, prepared once for many names. Immutable, thread-safe.
class IgnoreRules {
 public:
  /// "re:" entries are regular expressions that match from the start of a name (compressed-tensors); entries with '*'
  /// are globs of a whole name; others are names, or parts of a name between dots. Throws bad_input naming `file` and
  /// the entry for a regular expression that does not compile.
  IgnoreRules(const std::vector<std::string>& entries, const std::string& file);
  ~IgnoreRules();
  bool matches(std::string_view module) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// "quantization_config" of config.json. Throws bad_input naming `file`, key, value and expectation. Pure.
QuantizationConfig parse_quantization_config(const nlohmann::json& object, const std::string& file);
/// ModelOpt's own file: {"producer": ..., "quantization": {"quant_algo", "group_size", "exclude_modules"}}. As above.
QuantizationConfig parse_hf_quant_config(const nlohmann::json& root, const std::string& file);

}  // namespace fourfold
