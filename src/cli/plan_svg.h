// The arena as a picture: segments over steps and bytes, so that sharing can be seen.
#pragma once

#include <string>

#include "fourfold/plan.h"

namespace fourfold::cli {

/// An SVG document. Pure.
std::string plan_svg(const Plan& plan);

/// Writes `text` to `path`. Throws bad_input when the file cannot take it.
void write_file(const std::string& path, const std::string& text);

}  // namespace fourfold::cli
