// A file of JSON that a user names.
#pragma once

#include <string>

#include "output.h"

namespace fourfold::cli {

/// The file's value; discarded (is_discarded()) when it is no JSON. Throws bad_input, naming `name`, when the file
/// cannot be read, as a folder cannot.
Json read_json_file(const std::string& path, const std::string& name);

}  // namespace fourfold::cli
