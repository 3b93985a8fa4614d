// Who may include whom (docs/architecture.md, "Who includes whom"); any other arrow fails.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "source_tree.h"

namespace fourfold::lint {
namespace {

using Areas = std::set<std::string>;

/// Areas that a file of an area may include besides its own and include/fourfold.
const std::map<std::string, Areas>& arrows() {
  static const std::map<std::string, Areas> table = {
      {"core", {}},
      {"formats", {"core"}},
      {"plan", {"core", "formats", "kernels"}},
      {"backend", {"core", "plan"}},
      {"moe", {"backend", "plan", "formats", "core"}},
      {"cpu", {"backend", "plan", "formats", "core"}},
      {"cuda", {"backend", "plan", "formats", "core", "kernels"}},
      {"benchmark", {"cuda", "backend", "plan", "formats", "core", "kernels"}},
      {"model", {"moe", "backend", "formats", "core"}},
      {"cli", {}},
      {"examples", {}},
      {"include", {}},
  };
  return table;
}

/// The build writes this one; it holds the version and the commit.
const std::set<std::string> kGenerated = {"fourfold_version.h"};

/// The area that a quoted include leads to. A name without a folder is in the includer's own.
std::string target_area(const SourceFile& file, const std::string& target) {
  const std::size_t slash = target.find('/');
  return slash == std::string::npos ? file.area : target.substr(0, slash);
}

TEST(IncludeArrows, AreOnlyTheDrawnOnes) {
  std::size_t checked = 0;
  for (const SourceFile& file : cpp_files()) {
    const auto row = arrows().find(file.area);
    if (row == arrows().end()) continue;  // tests and fuzz targets look at anything
    for (const Include& include : includes_of(file)) {
      if (!include.quoted || kGenerated.contains(include.target)) continue;
      ++checked;
      const std::string area = target_area(file, include.target);
      EXPECT_TRUE(area == "fourfold" || area == file.area || row->second.contains(area))
          << file.path << ":" << include.line << ": " << file.area << " -> " << area << " (" << include.target << ")";
    }
  }
  EXPECT_GT(checked, 100u);
}

TEST(IncludeArrows, AnglesNeverLeadIntoTheProject) {
  std::size_t checked = 0;
  for (const SourceFile& file : cpp_files())
    for (const Include& include : includes_of(file)) {
      if (include.quoted) continue;
      ++checked;
      const std::string folder = include.target.substr(0, include.target.find('/'));
      EXPECT_TRUE(folder != "fourfold" && !arrows().contains(folder)) << file.path << ":" << include.line;
    }
  EXPECT_GT(checked, 100u);
}

TEST(IncludeArrows, NoIncludeClimbs) {
  std::size_t checked = 0;
  for (const SourceFile& file : cpp_files())
    for (const Include& include : includes_of(file)) {
      ++checked;
      EXPECT_EQ(include.target.find(".."), std::string::npos) << file.path << ":" << include.line;
    }
  EXPECT_GT(checked, 100u);
}

TEST(IncludeArrows, PublicHeadersIncludeOnlyThemselvesAndTheStandardLibrary) {
  std::size_t checked = 0;
  for (const SourceFile& file : files_below("include", {".h"}))
    for (const Include& include : includes_of(file)) {
      ++checked;
      if (include.quoted)
        EXPECT_TRUE(include.target.starts_with("fourfold/")) << file.path << ":" << include.line;
      else
        EXPECT_EQ(include.target.find_first_of("./"), std::string::npos) << file.path << ":" << include.line;
    }
  EXPECT_GT(checked, 20u);
}

/// Follows quoted includes of a file compiled for a wide instruction set. An inline function of a common header would
/// be compiled for that set, and the linker may keep that copy for everybody: hence only intrinsics and plain structs.
void check_isa_includes(const SourceFile& file, std::set<std::string>& seen) {
  static const std::set<std::string> allowed = {"immintrin.h", "cstddef", "cstdint", "cstring", "cmath"};
  for (const Include& include : includes_of(file)) {
    if (!include.quoted) {
      EXPECT_TRUE(allowed.contains(include.target))
          << file.path << ":" << include.line << ": <" << include.target << ">";
      continue;
    }
    EXPECT_TRUE(include.target.starts_with("cpu/") || include.target == "plan/cpu_tiles.h")
        << file.path << ":" << include.line << ": " << include.target;
    if (seen.insert(include.target).second) check_isa_includes(read_source("src/" + include.target), seen);
  }
}

TEST(IncludeArrows, FilesOfAnInstructionSetIncludeOnlyIntrinsicsAndPlainStructs) {
  static const std::regex suffix("_(avx2|avx512|avx512_bf16)\\.cpp$");
  std::size_t checked = 0;
  std::set<std::string> seen;
  for (const SourceFile& file : files_below("src", {".cpp"}))
    if (std::regex_search(file.path, suffix)) {
      ++checked;
      EXPECT_EQ(file.area, "cpu") << file.path;
      check_isa_includes(file, seen);
    }
  EXPECT_GE(checked, 3u);
  EXPECT_GE(seen.size(), 3u);
}

// Functions in the headers those files share must have internal linkage, or the copies of the instruction sets merge.
// One outside an unnamed namespace may only be there for others: no kernel may call it.
TEST(IncludeArrows, HeadersOfAnInstructionSetDefineFunctionsWithInternalLinkage) {
  static const std::regex function(R"(^(template <|inline |constexpr )[^=;]*?(\w+)\()");
  std::set<std::string> headers;
  std::vector<SourceFile> kernels = files_below("src/cpu", {"_avx2.cpp", "_avx512.cpp", "_avx512_bf16.cpp"});
  for (const SourceFile& file : kernels) check_isa_includes(file, headers);
  ASSERT_FALSE(headers.empty());
  for (const std::string& header : headers)
    if (header.starts_with("cpu/")) kernels.push_back(read_source("src/" + header));
  const auto called = [&](const std::string& name, const std::string& definer) {
    for (const SourceFile& file : kernels)
      for (const std::string& line : file.lines)
        if (file.path != definer && line.substr(0, line.find("//")).find(name + "(") != std::string::npos) return true;
    return definer.starts_with("src/cpu/");
  };
  std::size_t checked = 0;
  for (const std::string& header : headers) {
    const SourceFile file = read_source("src/" + header);
    const std::size_t unnamed = file.text.find("\nnamespace {\n");
    std::size_t offset = 0;
    for (const std::string& line : file.lines) {
      if (std::smatch match; std::regex_search(line, match, function)) {
        ++checked;
        EXPECT_TRUE(unnamed < offset || !called(match[2], file.path))
            << file.path << ": make it static or put it into an unnamed namespace: " << line;
      }
      offset += line.size() + 1;
    }
  }
  EXPECT_GT(checked, 20u);
}

}  // namespace
}  // namespace fourfold::lint
