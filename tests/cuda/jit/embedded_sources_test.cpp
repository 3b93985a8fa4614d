// The embedded text is the text of kernels/, and a kernel's closure is what its includes lead to.
#include "cuda/jit/embedded_sources.h"

#include <algorithm>

#include "jit_fixture.h"

namespace fourfold::cuda {
namespace {

std::vector<std::string_view> names(const std::vector<NamedSource>& sources) {
  std::vector<std::string_view> names;
  for (const NamedSource& source : sources) names.push_back(source.name);
  return names;
}

std::string failure_of(const std::vector<SourceFile>& files, std::string_view path) {
  try {
    SourceTree(files).closure(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return error.what();
  }
  return {};
}

TEST(EmbeddedSources, AreTheFilesOfKernelsToTheByte) {
  const fs::path root = fs::path(FOURFOLD_SOURCE_DIR) / "kernels";
  std::size_t files = 0;
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    const std::string ending = item.path().extension();
    if (!item.is_regular_file() || (ending != ".cu" && ending != ".cuh" && ending != ".h")) continue;
    ++files;
    const std::string bytes = read_bytes(item.path());
    const std::string path = fs::relative(item.path(), root).generic_string();
    EXPECT_EQ(SourceTree::embedded().text(path), std::string_view(bytes.data(), bytes.size())) << path;
  }
  EXPECT_GT(files, 1u);
  EXPECT_EQ(SourceTree::embedded().paths().size(), files);
}

TEST(EmbeddedSources, EveryKernelHasAClosure) {
  std::size_t kernels = 0;
  for (const std::string_view path : SourceTree::embedded().paths()) {
    if (!path.ends_with(".cu")) continue;
    ++kernels;
    EXPECT_NO_THROW(SourceTree::embedded().closure(path)) << path;
  }
  EXPECT_GT(kernels, 0u);
}

TEST(EmbeddedSources, ClosureHasTheKernelFirstAndOnlyWhatItIncludes) {
  EXPECT_EQ(names(sample_tree().closure("moe/a.cu")),
            (std::vector<std::string_view>{"moe/a.cu", "device/one.cuh", "device/two.cuh"}));
  EXPECT_EQ(names(sample_tree().closure("moe/b.cu")), (std::vector<std::string_view>{"moe/b.cu"}));
}

TEST(EmbeddedSources, IncludesMayBeginWithKernels) {
  const std::vector<SourceFile> files = {{"a.cu", "#include \"kernels/p/x.h\"\n"}, {"p/x.h", "int x;\n"}};
  const auto closure = SourceTree(files).closure("a.cu");
  ASSERT_EQ(closure.size(), 2u);
  EXPECT_EQ(closure[1], (NamedSource{"kernels/p/x.h", "int x;\n"}));
}

TEST(EmbeddedSources, CyclesEnd) {
  const std::vector<SourceFile> files = {
      {"a.cu", "#include \"b.h\"\n"}, {"b.h", "#include \"c.h\"\n"}, {"c.h", "#include \"b.h\"\n#include \"a.cu\"\n"}};
  EXPECT_EQ(SourceTree(files).closure("a.cu").size(), 3u);
}

TEST(EmbeddedSources, WhatCannotBeIncludedIsNamed) {
  const std::string missing = failure_of({{"a.cu", "#include \"none.h\"\n"}}, "a.cu");
  EXPECT_NE(missing.find("'a.cu' includes \"none.h\""), std::string::npos) << missing;
  EXPECT_NE(failure_of({{"d/a.cu", "#include \"../x.h\"\n"}, {"x.h", ""}}, "d/a.cu").find("../x.h"), std::string::npos);
  const std::string twice = failure_of({{"a.cu", "#include \"x.h\"\n#include \"kernels/x.h\"\n"}, {"x.h", ""}}, "a.cu");
  EXPECT_NE(twice.find("one name"), std::string::npos) << twice;
  EXPECT_NE(failure_of({{"a.cu", ""}}, "b.cu").find("there are: a.cu"), std::string::npos);
}

TEST(EmbeddedSources, TwoFilesOfOnePathAreRefused) {
  const std::vector<SourceFile> files = {{"a.cu", "1"}, {"a.cu", "2"}};
  EXPECT_THROW(SourceTree{files}, Error);
}

TEST(EmbeddedSources, QuotedIncludesAreFoundWhereverTheyStand) {
  EXPECT_EQ(quoted_includes("#include \"a\"\n  #  include\t\"b\" // why\n#include <c>\n// #include \"d\"\n"
                            "/* x\n#include \"e\"\n*/\n#include \"a\"\nint i; /* y */\n#include \"f\""),
            (std::vector<std::string_view>{"a", "b", "f"}));
  EXPECT_EQ(quoted_includes("// a comment with /* in it\n#include \"g\"\n#include \"broken\n"),
            (std::vector<std::string_view>{"g"}));
  EXPECT_TRUE(quoted_includes("").empty());
}

}  // namespace
}  // namespace fourfold::cuda
