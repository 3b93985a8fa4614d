// Shared libraries opened at run time, so that one build runs on machines with and without them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fourfold {

/// An open shared library (dlopen, RTLD_NOW | RTLD_LOCAL); closed by the destructor. Move-only. Symbols that were taken
/// from it are valid as long as it lives. All functions are thread-safe on distinct objects; symbol() on one object
/// too.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  /// Opens the first of `names` that loads; a name without '/' goes through the loader's own search.
  /// Throws unavailable with every name and the loader's text for it. Runs the library's initialisers.
  static DynamicLibrary open(std::span<const std::string> names);
  /// `names` for open(): every name in every folder that matches one of `folder_patterns` (shell wildcards; later
  /// matches first, so newer versions win), then the bare names. Reads folders; never throws for one that is missing.
  static std::vector<std::string> search_list(std::span<const std::string> names,
                                              std::span<const std::string> folder_patterns);
  /// The pattern for search_list that matches `folder` alone, whatever characters are in its name. Pure.
  static std::string literal_pattern(std::string_view folder);
  ~DynamicLibrary() { close(); }
  DynamicLibrary(DynamicLibrary&& other) noexcept { swap(other); }
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Address of an exported symbol. Throws unavailable naming the symbol and the library's path.
  void* symbol(const char* name) const;
  /// The same; null when the library does not export it or nothing is open.
  void* find_symbol(const char* name) const noexcept;
  bool is_open() const noexcept { return handle_ != nullptr; }
  /// Where the loader found it; empty when nothing is open.
  const std::string& path() const noexcept { return path_; }
  void close() noexcept;

 private:
  void swap(DynamicLibrary& other) noexcept {
    std::swap(handle_, other.handle_);
    path_.swap(other.path_);
  }
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace fourfold
