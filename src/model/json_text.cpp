// Strict JSON parsing on top of the JSON library.
#include "model/json_text.h"

#include <set>
#include <vector>

#include "core/check.h"
#include "core/file.h"

namespace fourfold {

using Json = nlohmann::json;

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  constexpr int kMaxDepth = 100;
  // The library takes a NUL for the end of the text.
  const std::size_t nul = text.find('\0');
  check(nul == std::string_view::npos, ErrorCode::bad_input, "{}: not JSON: a NUL byte at byte {}", file, nul);
  std::vector<std::set<std::string>> keys;  // of the open objects, by depth
  const auto on_event = [&](int depth, Json::parse_event_t event, Json& value) {
    check(depth <= kMaxDepth, ErrorCode::bad_input, "{}: JSON nested deeper than {} levels", file, kMaxDepth);
    if (event == Json::parse_event_t::object_start) {
      keys.resize(static_cast<std::size_t>(depth) + 1);
      keys.back().clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      check(keys[static_cast<std::size_t>(depth) - 1].insert(key).second, ErrorCode::bad_input,
            "{}: key {} appears twice", file, shown(value));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), on_event);
  } catch (const Json::exception& error) {
    fail(ErrorCode::bad_input, "{}: not JSON: {}", file, error.what());
  }
}

nlohmann::json read_json(const std::string& path) { return parse_json(read_text_file(path, kMaxJsonBytes), path); }

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace fourfold
