// Reading the tree: the functions of source_tree.h, and that they see what is there.
#include "source_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace fourfold::lint {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FOURFOLD_SOURCE_DIR;

std::string area_of(const std::string& path) {
  const std::size_t first = path.find('/');
  const std::string top = path.substr(0, first);
  if (top != "src") return top;
  const std::size_t second = path.find('/', first + 1);
  return second == std::string::npos ? top : path.substr(first + 1, second - first - 1);
}

bool ends_in_one_of(const std::string& name, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) { return name.ends_with(ending); });
}

}  // namespace

SourceFile read_source(const std::string& path) {
  std::ifstream stream(kRoot / path, std::ios::binary);
  if (!stream.good()) throw std::runtime_error(path + " cannot be read");
  std::ostringstream text;
  text << stream.rdbuf();
  SourceFile file{path, text.str(), {}, area_of(path)};
  std::istringstream lines(file.text);
  for (std::string line; std::getline(lines, line);) file.lines.push_back(line);
  return file;
}

std::vector<SourceFile> files_below(const std::string& folder, const std::vector<std::string>& endings) {
  std::vector<SourceFile> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    const std::string path = fs::relative(entry.path(), kRoot).generic_string();
    if (entry.is_regular_file() && ends_in_one_of(path, endings)) files.push_back(read_source(path));
  }
  if (files.empty()) throw std::runtime_error("no file below " + folder);
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

const std::vector<SourceFile>& cpp_files() {
  static const std::vector<SourceFile> files = [] {
    std::vector<SourceFile> all;
    for (const char* folder : {"src", "include", "examples", "tests", "fuzz"})
      for (SourceFile& file : files_below(folder, {".h", ".cpp"})) all.push_back(std::move(file));
    return all;
  }();
  return files;
}

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<Include> includes;
  for (std::size_t i = 0; i < file.lines.size(); ++i)
    if (std::smatch match; std::regex_search(file.lines[i], match, pattern))
      includes.push_back({match[2], match[1] == "\"", i + 1});
  return includes;
}

namespace {

TEST(SourceTree, SeesEveryFolder) {
  for (const char* area :
       {"core", "formats", "plan", "backend", "moe", "cpu", "model", "cli", "include", "examples", "tests", "fuzz"}) {
    const auto count = std::count_if(cpp_files().begin(), cpp_files().end(),
                                     [&](const SourceFile& file) { return file.area == area; });
    EXPECT_GT(count, 0) << area;
  }
}

TEST(SourceTree, ReadsIncludesOfBothKinds) {
  SourceFile file{"src/core/x.cpp", "", {"#include <a>", "  # include \"b/c.h\"", "// #include <d>"}, "core"};
  const auto includes = includes_of(file);
  ASSERT_EQ(includes.size(), 2u);
  EXPECT_EQ(includes[0].target, "a");
  EXPECT_FALSE(includes[0].quoted);
  EXPECT_EQ(includes[1].target, "b/c.h");
  EXPECT_TRUE(includes[1].quoted);
  EXPECT_EQ(includes[1].line, 2u);
}

TEST(SourceTree, AFolderWithoutFilesThrows) { EXPECT_THROW(files_below("src/core", {".nothing"}), std::runtime_error); }

}  // namespace
}  // namespace fourfold::lint
