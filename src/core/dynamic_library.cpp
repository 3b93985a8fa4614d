// dlopen with a search list and errors that name everything that was tried.
#include "core/dynamic_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include "core/check.h"

namespace fourfold {
namespace {

std::string loader_text() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

// The loader knows the file that a bare name led to.
std::string path_of(void* handle, const std::string& fallback) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr) return fallback;
  return *map->l_name == '\0' ? fallback : map->l_name;
}

std::vector<std::string> matching_folders(const std::string& pattern) {
  std::vector<std::string> folders;
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0)
    for (std::size_t i = found.gl_pathc; i-- > 0;) folders.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  return folders;
}

}  // namespace

DynamicLibrary DynamicLibrary::open(std::span<const std::string> names) {
  check(!names.empty(), ErrorCode::internal, "a library is to be opened, but no name was given");
  std::string tried;
  for (const std::string& name : names) {
    DynamicLibrary library;
    library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ != nullptr) {
      library.path_ = path_of(library.handle_, name);
      return library;
    }
    std::string text = loader_text();  // begins with the name of the file that is at fault, mostly this one
    if (text.starts_with(name + ": ")) text.erase(0, name.size() + 2);
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", name, text);
  }
  constexpr const char* kRemedy = "install it or add its folder to the loader's path";
  if (names.size() == 1) fail(ErrorCode::unavailable, "cannot open {}; {}", tried, kRemedy);
  fail(ErrorCode::unavailable, "cannot open {}: tried {} names ({}); {}", names.back(), names.size(), tried, kRemedy);
}

std::vector<std::string> DynamicLibrary::search_list(std::span<const std::string> names,
                                                     std::span<const std::string> folder_patterns) {
  std::vector<std::string> list;
  for (const std::string& pattern : folder_patterns)
    for (const std::string& folder : matching_folders(pattern))
      for (const std::string& name : names) list.push_back(folder + "/" + name);
  list.insert(list.end(), names.begin(), names.end());
  return list;
}

std::string DynamicLibrary::literal_pattern(std::string_view folder) {
  std::string pattern;
  for (const char c : folder) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void* DynamicLibrary::symbol(const char* name) const {
  void* address = find_symbol(name);
  check(address != nullptr, ErrorCode::unavailable, "'{}' has no symbol {}; install a version that has it",
        path_.empty() ? "a library that is not open" : path_, name);
  return address;
}

void* DynamicLibrary::find_symbol(const char* name) const noexcept {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, name);
}

void DynamicLibrary::close() noexcept {
  if (handle_ != nullptr) ::dlclose(handle_);
  handle_ = nullptr;
  path_.clear();
}

}  // namespace fourfold
