// Names of kernel instances.
#include "plan/kernel_spec.h"

#include <fmt/format.h>

namespace fourfold {

std::string KernelSpec::entry() const {
  const std::size_t slash = source.rfind('/');
  const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = source.rfind('.');
  return source.substr(begin, dot == std::string::npos || dot < begin ? std::string::npos : dot - begin);
}

std::string KernelSpec::name() const {
  std::string text = entry();
  char separator = '<';
  for (const auto& [macro, value] : defines) {
    text += fmt::format("{}{}={}", separator, macro, value);
    separator = ',';
  }
  return defines.empty() ? text : text + '>';
}

}  // namespace fourfold
