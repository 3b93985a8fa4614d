// Rules that every file keeps: length, first comment, one reader of the environment, no leftovers, no machine's paths.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "source_tree.h"

namespace fourfold::lint {
namespace {

constexpr std::size_t kMaxLines = 600;
constexpr std::ptrdiff_t kMaxColumns = 120;

/// Sources, scripts, build files and documents.
std::vector<SourceFile> all_text_files() {
  std::vector<SourceFile> files = cpp_files();
  for (const char* folder : {"docs", "cmake"})
    for (SourceFile& file : files_below(folder, {".md", ".cmake", ".in"})) files.push_back(std::move(file));
  for (const char* path : {"README.md", "CMakeLists.txt", "demo.sh", "test.sh", ".ci/run", "tools/gpu_check",
                           "tools/install_packages", "models/moe-13m/README.md", "tests/data/README.md"})
    files.push_back(read_source(path));
  return files;
}

TEST(FileRules, NoSourceFileIsLongerThan600Lines) {
  ASSERT_GT(cpp_files().size(), 50u);
  for (const SourceFile& file : cpp_files()) EXPECT_LE(file.lines.size(), kMaxLines) << file.path;
}

/// Characters of a line of UTF-8: every byte but those that continue one.
std::ptrdiff_t columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
}

TEST(FileRules, NoLineIsWiderThan120Columns) {
  std::size_t checked = 0;
  for (const SourceFile& file : all_text_files()) {
    const bool document = file.path.ends_with(".md");
    if (!document && !file.path.ends_with(".cpp") && !file.path.ends_with(".h")) continue;
    ++checked;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (document && file.lines[i].starts_with("|")) continue;  // a row of a table is one line
      EXPECT_LE(columns(file.lines[i]), kMaxColumns) << file.path << ":" << i + 1;
    }
  }
  EXPECT_GT(checked, 60u);
}

TEST(FileRules, TheFirstLineSaysWhatTheFileIsFor) {
  ASSERT_GT(cpp_files().size(), 50u);
  for (const SourceFile& file : cpp_files()) {
    ASSERT_FALSE(file.lines.empty()) << file.path;
    EXPECT_TRUE(file.lines[0].starts_with("// ") && file.lines[0].size() > 15) << file.path << ": " << file.lines[0];
  }
}

TEST(FileRules, ExactlyOneFileReadsTheEnvironment) {
  static const std::regex call(R"(\b(secure_)?getenv\s*\()");
  std::vector<std::string> readers;
  for (const SourceFile& file : files_below("src", {".h", ".cpp"}))
    if (std::regex_search(file.text, call)) readers.push_back(file.path);
  EXPECT_EQ(readers, std::vector<std::string>{"src/core/settings.cpp"});
}

TEST(FileRules, NothingIsLeftToDo) {
  // Spelled in two halves, so that this file does not find itself.
  static const std::regex leftover(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b");
  const auto files = all_text_files();
  ASSERT_GT(files.size(), 60u);
  for (const SourceFile& file : files)
    for (std::size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_FALSE(std::regex_search(file.lines[i], leftover)) << file.path << ":" << i + 1;
}

TEST(FileRules, NoPathOfAMachine) {
  static const std::regex path(
      "/(wo"
      "rk|ho"
      "me|ro"
      "ot|Us"
      "ers|mnt|workspace)/");
  const auto files = all_text_files();
  ASSERT_GT(files.size(), 60u);
  for (const SourceFile& file : files)
    for (std::size_t i = 0; i < file.lines.size(); ++i)
      EXPECT_FALSE(std::regex_search(file.lines[i], path)) << file.path << ":" << i + 1 << ": " << file.lines[i];
}

TEST(FileRules, HeadersAreIncludedOnce) {
  std::size_t checked = 0;
  for (const SourceFile& file : cpp_files()) {
    if (!file.path.ends_with(".h")) continue;
    ++checked;
    EXPECT_NE(file.text.find("#pragma once\n"), std::string::npos) << file.path;
  }
  EXPECT_GT(checked, 20u);
}

TEST(FileRules, NoNameThatSaysNothing) {
  static const std::regex empty_name("(^|[/_])(utils?|helpers?|managers?|misc|fast|optimized|new|v2|impl)([_.]|$)");
  ASSERT_GT(cpp_files().size(), 50u);
  for (const SourceFile& file : cpp_files()) EXPECT_FALSE(std::regex_search(file.path, empty_name)) << file.path;
}

}  // namespace
}  // namespace fourfold::lint
