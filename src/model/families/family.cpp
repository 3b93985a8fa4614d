// The list of model families.
#include "model/families/family.h"

#include <fmt/ranges.h>

#include <array>

#include "core/check.h"
#include "fourfold/model.h"

namespace fourfold {

namespace {

std::array<const Family*, 1> families() { return {&qwen3_moe_family()}; }

}  // namespace

const Family& family_of(const ModelConfig& config) {
  for (const Family* family : families())
    if (family->architecture() == config.architecture) return *family;
  fail(ErrorCode::unsupported, "{}: architecture \"{}\" is not one of the known ones: {}", config.file,
       config.architecture, fmt::join(known_architectures(), ", "));
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.emplace_back(family->architecture());
  return names;
}

}  // namespace fourfold
