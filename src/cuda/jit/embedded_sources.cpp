// Lookup of kernel sources and the walk along their includes.
#include "cuda/jit/embedded_sources.h"

#include <algorithm>

#include "core/check.h"

namespace fourfold::cuda {
namespace {

constexpr std::string_view kRootPrefix = "kernels/";

std::string_view without_leading_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

// The target of `#include "target"`, empty for any other line.
std::string_view include_target(std::string_view line) {
  line = without_leading_blanks(line);
  if (!line.starts_with('#')) return {};
  line = without_leading_blanks(line.substr(1));
  if (!line.starts_with("include")) return {};
  line = without_leading_blanks(line.substr(7));
  if (!line.starts_with('"')) return {};
  const std::size_t end = line.find('"', 1);
  return end == std::string_view::npos ? std::string_view() : line.substr(1, end - 1);
}

// Whether a block comment is open at the end of `line`, given whether it was at its begin.
bool comment_open_after(std::string_view line, bool open) {
  for (std::size_t at = 0; at + 1 < line.size(); ++at) {
    const std::string_view two = line.substr(at, 2);
    if (!open && two == "//") return false;
    if (two != (open ? "*/" : "/*")) continue;
    open = !open;
    ++at;
  }
  return open;
}

}  // namespace

std::vector<std::string_view> quoted_includes(std::string_view text) {
  std::vector<std::string_view> targets;
  bool in_comment = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view target = in_comment ? std::string_view() : include_target(line);
    in_comment = comment_open_after(line, in_comment);
    if (!target.empty() && std::find(targets.begin(), targets.end(), target) == targets.end())
      targets.push_back(target);
  }
  return targets;
}

SourceTree::SourceTree(std::span<const SourceFile> files) {
  for (const SourceFile& file : files)
    check(files_.emplace(file.path, file.text).second, ErrorCode::internal, "two kernel sources have the path '{}'",
          file.path);
}

const SourceTree& SourceTree::embedded() {
  static const SourceTree tree(embedded_files());
  return tree;
}

std::vector<std::string_view> SourceTree::paths() const {
  std::vector<std::string_view> paths;
  for (const auto& [path, text] : files_) paths.push_back(path);
  return paths;
}

std::string_view SourceTree::text(std::string_view path) const {
  const auto found = files_.find(path);
  if (found == files_.end())
    fail(ErrorCode::unsupported, "no kernel source '{}'; there are: {}", path, fmt::join(paths(), ", "));
  return found->second;
}

std::vector<NamedSource> SourceTree::closure(std::string_view path) const {
  std::vector<NamedSource> sources{{path, text(path)}};
  std::map<std::string_view, std::string_view> name_of;  // path below kernels/ -> the name it is included by
  name_of.emplace(path, path);
  for (std::size_t next = 0; next < sources.size(); ++next) {
    const NamedSource includer = sources[next];  // a copy: the vector grows
    for (const std::string_view name : quoted_includes(includer.text)) {
      check(name.find("..") == std::string_view::npos, ErrorCode::unsupported,
            "kernel source '{}' includes \"{}\"; write the path below kernels/", includer.name, name);
      const std::string_view below = name.starts_with(kRootPrefix) ? name.substr(kRootPrefix.size()) : name;
      const auto [known, added] = name_of.emplace(below, name);
      check(known->second == name, ErrorCode::unsupported,
            "kernel source '{}' includes \"{}\", which elsewhere is \"{}\"; use one name for one file", includer.name,
            name, known->second);
      if (!added) continue;
      const auto file = files_.find(below);
      check(file != files_.end(), ErrorCode::unsupported,
            "kernel source '{}' includes \"{}\", which is no file below kernels/", includer.name, name);
      sources.push_back({name, file->second});
    }
  }
  std::sort(sources.begin() + 1, sources.end(),
            [](const NamedSource& a, const NamedSource& b) { return a.name < b.name; });
  return sources;
}

}  // namespace fourfold::cuda
