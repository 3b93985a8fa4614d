// The project's own files as text, for the lint tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fourfold::lint {

/// One file of the project.
struct SourceFile {
  std::string path;  ///< from the project's root, with '/'
  std::string text;
  std::vector<std::string> lines;  ///< without line ends
  /// The folder that decides what it may include: "core", ..., "cli", "include", "examples", "tests".
  std::string area;
};

/// One #include with its place.
struct Include {
  std::string target;  ///< without the brackets or quotes
  bool quoted = false;
  std::size_t line = 0;  ///< from 1
};

/// Every file below `folder` (from the project's root) whose name ends in one of `endings`, by path. Throws
/// std::runtime_error when there is none: a lint that sees no files must not pass.
std::vector<SourceFile> files_below(const std::string& folder, const std::vector<std::string>& endings);

/// The C++ files of src, include, examples, tests and fuzz.
const std::vector<SourceFile>& cpp_files();

/// One file. Throws std::runtime_error when it is not there.
SourceFile read_source(const std::string& path);

std::vector<Include> includes_of(const SourceFile& file);

}  // namespace fourfold::lint
