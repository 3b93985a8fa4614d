// Stop ids from the two files that may hold them.
#include "model/generation_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "model/json_text.h"

namespace fourfold {
namespace {

/// nullopt when the key is absent; an empty list when it is null.
std::optional<std::vector<std::int32_t>> stop_ids_of(const nlohmann::json& root, const std::string& file) {
  check(root.is_object(), ErrorCode::bad_input, "{}: {} instead of a JSON object", file, shown(root));
  const auto at = root.find("eos_token_id");
  if (at == root.end()) return std::nullopt;
  std::vector<std::int32_t> ids;
  if (at->is_null()) return ids;
  const nlohmann::json list = at->is_array() ? *at : nlohmann::json::array({*at});
  for (const auto& id : list) {
    check(id.is_number_unsigned() && id.get<std::uint64_t>() <= INT32_MAX, ErrorCode::bad_input,
          "{}: 'eos_token_id' is {}; expected is a token id, a list of them, or null", file, shown(*at));
    ids.push_back(id.get<std::int32_t>());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

std::vector<std::int32_t> parse_stop_ids(std::string_view config_text, std::string_view generation_text,
                                         const std::string& config_file, const std::string& generation_file) {
  if (!generation_text.empty())
    if (auto ids = stop_ids_of(parse_json(generation_text, generation_file), generation_file)) return *ids;
  const nlohmann::json root = parse_json(config_text, config_file);
  if (auto ids = stop_ids_of(root, config_file)) return *ids;
  const auto inner = root.find("text_config");
  if (inner != root.end() && inner->is_object())
    if (auto ids = stop_ids_of(*inner, config_file)) return *ids;
  return {};
}

std::vector<std::int32_t> load_stop_ids(const std::string& folder) {
  const std::filesystem::path base(folder);
  const std::string config = (base / "config.json").string(), generation = (base / "generation_config.json").string();
  std::error_code ignored;
  std::string text;
  if (std::filesystem::exists(generation, ignored)) {
    text = read_text_file(generation, kMaxJsonBytes);
    check(!text.empty(), ErrorCode::bad_input, "{}: the file is empty", generation);
  }
  return parse_stop_ids(read_text_file(config, kMaxJsonBytes), text, config, generation);
}

}  // namespace fourfold
