// A file of JSON that a user names.
#include "json_file.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "fourfold/error.h"

namespace fourfold::cli {

Json read_json_file(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A folder opens and then fails; an empty file gives nothing, which is no JSON but can be read.
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || text.bad())
    throw Error(ErrorCode::bad_input, fmt::format("{}: the file cannot be read; name a readable file", name));
  return Json::parse(text.str(), nullptr, false);
}

}  // namespace fourfold::cli
