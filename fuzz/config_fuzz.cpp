// libFuzzer target: any bytes as config.json, hf_quant_config.json and generation_config.json. They parse, or throw
// bad_input, or unsupported for what they describe well and nothing here runs; nothing else.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fourfold/error.h"
#include "model/generation_config.h"
#include "model/hf_config.h"

namespace {

template <class Action>
void expect_refusal_at_worst(Action action) {
  try {
    action();
  } catch (const fourfold::Error& error) {
    const fourfold::ErrorCode code = error.code();
    if (code != fourfold::ErrorCode::bad_input && code != fourfold::ErrorCode::unsupported) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_refusal_at_worst([&] {
    const fourfold::ModelConfig config = fourfold::parse_model_config(text, "config.json");
    if (config.quantization) config.quantization->ignores("model.layers.0.mlp.experts.0.up_proj");
    const std::string known[] = {config.architecture};
    fourfold::check_runnable(config, known);
  });
  expect_refusal_at_worst([&] { fourfold::parse_model_config("{}", "config.json", text); });
  expect_refusal_at_worst([&] { fourfold::parse_stop_ids(text, "{}"); });
  expect_refusal_at_worst([&] { fourfold::parse_stop_ids("{}", text); });
  return 0;
}
