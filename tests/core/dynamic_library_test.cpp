// Libraries opened at run time: the first name that loads, and errors that name everything that was tried.
#include "core/dynamic_library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "fourfold/error.h"
#include "support/temporary_folder.h"

namespace fourfold {
namespace {

using Names = std::vector<std::string>;

// The C library's mathematics: on every Linux.
const std::string kPresent = "libm.so.6";

TEST(DynamicLibrary, OpensTheFirstNameThatLoads) {
  const DynamicLibrary library = DynamicLibrary::open(Names{"libfourfold-none.so.1", kPresent});
  EXPECT_TRUE(library.is_open());
  EXPECT_NE(library.path().find(kPresent), std::string::npos) << library.path();
  EXPECT_EQ(library.path().front(), '/');
  const auto cosine = reinterpret_cast<double (*)(double)>(library.symbol("cos"));
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(DynamicLibrary, AllNamesAreInTheErrorWithReasons) {
  try {
    DynamicLibrary::open(Names{"libfourfold-none.so.1", "/nowhere/libfourfold-none.so.2"});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    const std::string text = error.what();
    EXPECT_NE(text.find("libfourfold-none.so.1: "), std::string::npos) << text;
    EXPECT_NE(text.find("/nowhere/libfourfold-none.so.2: "), std::string::npos) << text;
    EXPECT_NE(text.find("cannot open shared object file"), std::string::npos) << text;
  }
}

TEST(DynamicLibrary, MissingSymbolIsNamedWithTheLibrary) {
  const DynamicLibrary library = DynamicLibrary::open(Names{kPresent});
  EXPECT_EQ(library.find_symbol("fourfold_no_such_function"), nullptr);
  try {
    library.symbol("fourfold_no_such_function");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find("fourfold_no_such_function"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(library.path()), std::string::npos);
  }
}

TEST(DynamicLibrary, ClosedOneHasNoSymbols) {
  DynamicLibrary library = DynamicLibrary::open(Names{kPresent});
  DynamicLibrary moved = std::move(library);
  EXPECT_NE(moved.find_symbol("cos"), nullptr);
  moved.close();
  EXPECT_FALSE(moved.is_open());
  EXPECT_EQ(moved.find_symbol("cos"), nullptr);
  EXPECT_THROW(moved.symbol("cos"), Error);
}

TEST(DynamicLibrary, SearchListPutsMatchingFoldersBeforeBareNames) {
  namespace fs = std::filesystem;
  const support::TemporaryFolder folder;
  const std::string root = folder.string();
  fs::create_directories(root + "/tool-12/lib");
  fs::create_directories(root + "/tool-13/lib");
  const Names found = DynamicLibrary::search_list(Names{"a", "b"}, Names{root + "/none*", root + "/tool-*/lib"});
  EXPECT_EQ(found, (Names{root + "/tool-13/lib/a", root + "/tool-13/lib/b", root + "/tool-12/lib/a",
                          root + "/tool-12/lib/b", "a", "b"}));
}

TEST(DynamicLibrary, ALiteralPatternMatchesJustThatFolder) {
  const support::TemporaryFolder owner;
  const std::string root = owner.string();
  for (const char* name : {"a[1]", "a1", "b*", "bb", "c?\\", "cc", "plain"})
    std::filesystem::create_directory(root + "/" + name);
  for (const char* name : {"a[1]", "b*", "c?\\", "plain"}) {
    const std::string folder = root + "/" + name;
    EXPECT_EQ(DynamicLibrary::search_list(Names{"x"}, Names{DynamicLibrary::literal_pattern(folder)}),
              (Names{folder + "/x", "x"}));
  }
}

}  // namespace
}  // namespace fourfold
