// Which ids end a text: "eos_token_id" of generation_config.json and config.json.
// Source: Hugging Face transformers (GenerationConfig); an integer, a list, null or absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

/// The stop ids, ascending, each once. The generation file wins where it has the key, even when that says null (no stop
/// id); without the key, or without the file (empty text), config.json decides. Empty means: run to the length limit.
/// Throws bad_input naming file, key and value for anything but unsigned integers below 2^31. Pure.
std::vector<std::int32_t> parse_stop_ids(std::string_view config_text, std::string_view generation_text,
                                         const std::string& config_file = "config.json",
                                         const std::string& generation_file = "generation_config.json");
/// Reads both files of a checkpoint folder; generation_config.json may be absent.
std::vector<std::int32_t> load_stop_ids(const std::string& folder);

}  // namespace fourfold
