// Tests mirror sources: every source has a test that looks at it, and every test folder has a source folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "source_tree.h"

namespace fourfold::lint {
namespace {

/// Sources without a test of their name or one that includes their header: by what they are tested instead. A path
/// that ends in '/' or '_' stands for all that begin so.
const std::map<std::string, std::string>& tested_elsewhere() {
  static const std::map<std::string, std::string> table = {
      {"src/cli/", "verbs are run as a program by the tests in tests/cli"},
      {"src/cpu/micro_kernel_", "every instruction set is compared with the oracle by tests/moe/isa_matrix_test.cpp"},
      {"src/cpu/ops_kernels_", "one table of kernels per instruction set, reached through ops_dense and ops_attention"},
      {"src/model/families/", "every family runs whole checkpoints against reference values in tests/model"},
  };
  return table;
}

bool listed(const std::string& path) {
  return std::any_of(tested_elsewhere().begin(), tested_elsewhere().end(), [&](const auto& row) {
    const bool prefix = row.first.ends_with('/') || row.first.ends_with('_');
    return prefix ? path.starts_with(row.first) : path == row.first;
  });
}

/// "src/core/log.cpp" -> "core/log".
std::string module_of(const std::string& path) { return path.substr(4, path.rfind('.') - 4); }

TEST(Mirror, EverySourceHasATest) {
  std::set<std::string> tests, included;
  for (const SourceFile& file : files_below("tests", {".cpp", ".h"})) {
    if (file.path.ends_with("_test.cpp")) tests.insert(file.path);
    for (const Include& include : includes_of(file))
      if (include.quoted) included.insert(include.target);
  }
  std::size_t checked = 0;
  for (const SourceFile& file : files_below("src", {".cpp"})) {
    ++checked;
    const std::string module = module_of(file.path);
    EXPECT_TRUE(tests.contains("tests/" + module + "_test.cpp") || included.contains(module + ".h") ||
                listed(file.path))
        << file.path << ": no tests/" << module << "_test.cpp, no test includes " << module
        << ".h, and no reason is listed in tests/lint/mirror_test.cpp";
  }
  EXPECT_GT(checked, 30u);
}

TEST(Mirror, EveryListedReasonIsStillNeeded) {
  const auto sources = files_below("src", {".cpp"});
  for (const auto& [path, reason] : tested_elsewhere()) {
    const bool used = std::any_of(sources.begin(), sources.end(),
                                  [&](const SourceFile& file) { return file.path.starts_with(path); });
    EXPECT_TRUE(used) << path << " is listed in tests/lint/mirror_test.cpp, but no source has that name";
    EXPECT_FALSE(reason.empty()) << path;
  }
}

TEST(Mirror, EverySourceFolderHasTests) {
  std::map<std::string, std::size_t> count;
  for (const SourceFile& file : files_below("tests", {"_test.cpp"})) ++count[file.path.substr(0, file.path.rfind('/'))];
  std::set<std::string> areas;
  for (const SourceFile& file : files_below("src", {".cpp"})) areas.insert(file.area);
  ASSERT_GE(areas.size(), 8u);
  for (const std::string& area : areas) EXPECT_GT(count["tests/" + area], 0u) << "tests/" << area;
}

TEST(Mirror, EveryTestFolderMirrorsASourceFolder) {
  std::set<std::string> areas = {"lint"};
  for (const SourceFile& file : files_below("src", {".cpp"})) areas.insert(file.area);
  std::size_t checked = 0;
  for (const SourceFile& file : files_below("tests", {"_test.cpp"})) {
    ++checked;
    const std::string folder = file.path.substr(6, file.path.find('/', 6) - 6);
    EXPECT_TRUE(areas.contains(folder)) << file.path << " would not be built: no src/" << folder;
  }
  EXPECT_GT(checked, 20u);
}

}  // namespace
}  // namespace fourfold::lint
