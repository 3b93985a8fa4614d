// JSON texts of a checkpoint (configs, index) as a tree, parsed more strictly than the JSON library does by itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fourfold {

/// Longest config or index that is read.
inline constexpr std::uint64_t kMaxJsonBytes = 256u << 20;

/// The text as JSON. Throws bad_input naming `file` and the byte for anything that is not JSON, for a duplicate key,
/// and for more than 100 levels. Pure.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// read_text_file and parse_json.
nlohmann::json read_json(const std::string& path);

/// A value in a message: its JSON, cut after 80 characters.
std::string shown(const nlohmann::json& value);

}  // namespace fourfold
