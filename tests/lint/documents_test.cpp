// Documents that quote the code must quote the code that is there.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "source_tree.h"

namespace fourfold::lint {
namespace {

const std::filesystem::path kRoot = FOURFOLD_SOURCE_DIR;

/// Matches of `pattern`'s first group in `text`, once each.
std::set<std::string> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

TEST(Documents, TheReadmesExampleIsTheCompiledOne) {
  const std::string example = read_source("examples/moe_on_cpu.cpp").text;
  const std::string readme = read_source("README.md").text;
  const std::string open = "<!-- examples/moe_on_cpu.cpp -->\n```cpp\n";
  const std::size_t begin = readme.find(open);
  ASSERT_NE(begin, std::string::npos);
  const std::size_t start = begin + open.size(), end = readme.find("```\n", start);
  ASSERT_NE(end, std::string::npos);
  ASSERT_GT(end - start, 200u);
  EXPECT_EQ(readme.substr(start, end - start), example);
}

TEST(Documents, EverySettingIsDescribedAndNoOther) {
  const std::string header = read_source("include/fourfold/settings.h").text;
  const auto in_header = all_matches(header, "///< (FOURFOLD_[A-Z_]+)");
  ASSERT_EQ(in_header.size(), 10u);
  EXPECT_EQ(all_matches(read_source("docs/settings.md").text, "\\| `(FOURFOLD_[A-Z_]+)` \\|"), in_header);
  EXPECT_EQ(all_matches(read_source("src/core/settings.cpp").text, "\"(FOURFOLD_[A-Z_]+[A-Z])\""), in_header);
}

TEST(Documents, EveryFileThatADocumentNamesIsThere) {
  std::size_t checked = 0;
  std::vector<SourceFile> documents = files_below("docs", {".md"});
  for (const char* path : {"README.md", "models/moe-13m/README.md", "tests/data/README.md"})
    documents.push_back(read_source(path));
  for (const SourceFile& document : documents)
    for (const std::string& path : all_matches(document.text,
                                               "((?:src|include|tests|docs|examples|fuzz|cmake|tools)/"
                                               "[A-Za-z0-9_/.-]*[a-z0-9_]\\.(?:h|cpp|md|cmake|json))\\b")) {
      ++checked;
      EXPECT_TRUE(std::filesystem::exists(kRoot / path)) << document.path << " names " << path;
    }
  EXPECT_GT(checked, 30u);
}

TEST(Documents, EveryLinkLeadsSomewhere) {
  std::size_t checked = 0;
  std::vector<SourceFile> documents = files_below("docs", {".md"});
  documents.push_back(read_source("README.md"));
  for (const SourceFile& document : documents)
    for (const std::string& link : all_matches(document.text, "\\]\\(([^)#]+)[^)]*\\)")) {
      if (link.starts_with("http")) continue;
      ++checked;
      const auto target = kRoot / std::filesystem::path(document.path).parent_path() / link;
      EXPECT_TRUE(std::filesystem::exists(target)) << document.path << " links to " << link;
    }
  EXPECT_GT(checked, 5u);
}

}  // namespace
}  // namespace fourfold::lint
