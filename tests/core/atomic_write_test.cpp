// A file or folder appears complete or not at all, and a failure leaves nothing beside it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/file.h"
#include "fourfold/error.h"
#include "support/temporary_folder.h"

namespace fourfold {
namespace {

namespace fs = std::filesystem;

struct AtomicWrite : testing::Test {
  support::TemporaryFolder folder;
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static void write_text(const fs::path& path, std::string_view text) {
    OutputFile file = OutputFile::create(path);
    file.write(text.data(), text.size());
    file.close();
  }
};

using Names = std::vector<std::string>;

TEST_F(AtomicWrite, FileReplacesAnOlderOneAndLeavesNothingBeside) {
  write_file_atomically(folder / "f", std::string_view("old and longer"));
  write_file_atomically(folder / "f", std::string_view("new"));
  EXPECT_EQ(read_text_file(folder / "f", 100), "new");
  EXPECT_EQ(names(), Names{"f"});
}

TEST_F(AtomicWrite, WhatIsNoFileIsNotReplacedByOne) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", folder / "to_a_device");
  fs::create_symlink("/proc/self/fd/1", folder / "stdout");  // as /dev/stdout is one
  const Names before = names();
  for (const char* name : {"pipe", "to_a_device", "stdout"}) {
    for (const bool only_asked : {true, false}) {
      try {
        if (only_asked)
          check_writable(folder / name);
        else
          write_file_atomically(folder / name, std::string_view("x"));
        ADD_FAILURE() << name << " was replaced";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_input);
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
    EXPECT_FALSE(fs::is_regular_file(fs::symlink_status(folder / name))) << name;
  }
  EXPECT_EQ(names(), before);
}

TEST_F(AtomicWrite, WhetherAFileCanBeWrittenIsAskedWithoutWriting) {
  check_writable(folder / "new");
  write_text(folder / "old", "text");
  check_writable(folder / "old");
  EXPECT_EQ(read_text_file(folder / "old", 100), "text");
  for (const fs::path& path :
       {folder.path(), folder / "none" / "x", folder / std::string(250, 'a'), folder / "old" / "x"})
    EXPECT_THROW(check_writable(path), Error) << path;  // 250 characters have no place for the partial file's ending
  EXPECT_EQ(names(), Names{"old"});
}

TEST_F(AtomicWrite, FileThatCannotBeRenamedLeavesNothing) {
  fs::create_directories(folder / "taken" / "inside");  // rename over a folder fails, after the write has succeeded
  try {
    write_file_atomically(folder / "taken", std::string_view("x"));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("taken"), std::string::npos) << error.what();
  }
  EXPECT_EQ(names(), Names{"taken"});
}

TEST_F(AtomicWrite, ReadOnlyFolderIsReportedAndStaysEmpty) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes into read-only folders";
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(write_file_atomically(folder / "f", std::string_view("x")), Error);
  EXPECT_THROW(AtomicFolder(folder / "d"), Error);
  EXPECT_EQ(names(), Names{});
}

TEST_F(AtomicWrite, MissingFolderIsReported) {
  EXPECT_THROW(write_file_atomically(folder / "none" / "f", std::string_view("x")), Error);
  EXPECT_EQ(names(), Names{});
}

TEST_F(AtomicWrite, FolderAppearsOnCommitOnly) {
  {
    AtomicFolder out(folder / "model");
    fs::create_directory(out.path() / "sub");
    write_text(out.path() / "a", "1");
    write_text(out.path() / "sub" / "b", "2");
    EXPECT_FALSE(fs::exists(folder / "model"));
    EXPECT_EQ(out.path().filename().string().rfind(".model.partial-", 0), 0u);
    out.commit();
  }
  EXPECT_EQ(names(), Names{"model"});
  EXPECT_EQ(read_text_file(folder / "model" / "sub" / "b", 10), "2");
}

TEST_F(AtomicWrite, FolderWithoutCommitVanishes) {
  {
    AtomicFolder out(folder / "model");
    write_text(out.path() / "a", "1");
  }
  EXPECT_EQ(names(), Names{});
}

TEST_F(AtomicWrite, EmptyDestinationFolderIsTaken) {
  fs::create_directory(folder / "model");
  AtomicFolder out(folder / "model/");
  write_text(out.path() / "a", "1");
  out.commit();
  EXPECT_EQ(read_text_file(folder / "model" / "a", 10), "1");
  EXPECT_EQ(names(), Names{"model"});
}

TEST_F(AtomicWrite, OccupiedDestinationIsRefusedAndUntouched) {
  fs::create_directory(folder / "model");
  write_text(folder / "model" / "mine", "1");
  write_text(folder / "file", "1");
  for (const char* name : {"model", "file"}) {
    try {
      AtomicFolder out(folder / name);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
    }
  }
  EXPECT_EQ(names(), (Names{"file", "model"}));
  EXPECT_EQ(read_text_file(folder / "model" / "mine", 10), "1");
}

TEST_F(AtomicWrite, DestinationFilledMeanwhileIsNotOverwritten) {
  {
    AtomicFolder out(folder / "model");
    fs::create_directory(folder / "model");
    write_text(folder / "model" / "theirs", "1");
    try {
      out.commit();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
    }
  }
  EXPECT_EQ(names(), Names{"model"});
  EXPECT_TRUE(fs::exists(folder / "model" / "theirs"));
}

TEST_F(AtomicWrite, TwoFoldersForOneDestinationDoNotMeet) {
  AtomicFolder first(folder / "model"), second(folder / "model");
  EXPECT_NE(first.path(), second.path());
}

TEST_F(AtomicWrite, MissingParentsAreMade) {
  AtomicFolder out(folder / "a" / "b" / "model");
  out.commit();
  EXPECT_TRUE(fs::is_directory(folder / "a" / "b" / "model"));
}

}  // namespace
}  // namespace fourfold
