// Reads are complete or refused; output files report the system's error.
#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "fourfold/error.h"
#include "support/temporary_folder.h"

namespace fourfold {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Files : testing::Test {
  support::TemporaryFolder folder;
  fs::path put(const char* name, std::string_view text) const {
    OutputFile file = OutputFile::create(folder / name);
    file.write(bytes_of(text));
    file.close();
    return folder / name;
  }
};

template <class Call>
void expect_bad_input(Call call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(Files, ReadAtReturnsTheBytesAtAnOffset) {
  const InputFile file = InputFile::open(put("a", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  std::string text(4, ' ');
  file.read_at(6, std::as_writable_bytes(std::span(text.data(), text.size())));
  EXPECT_EQ(text, "6789");
}

TEST_F(Files, AWholeFileIsReadUpToALimit) {
  const fs::path path = put("whole", "0123456789");
  const std::vector<std::byte> bytes = read_file(path, 10);
  EXPECT_TRUE(std::ranges::equal(bytes, bytes_of("0123456789")));
  EXPECT_EQ(read_text_file(path, 10), "0123456789");
  expect_bad_input([&] { read_file(path, 9); }, {"whole", "10 bytes", "at most 9"});
  EXPECT_TRUE(read_file(put("empty", ""), 0).empty());
}

TEST_F(Files, ReadPastTheEndIsRefusedWithBothNumbers) {
  const InputFile file = InputFile::open(put("short", "0123456789"));
  std::vector<std::byte> bytes(4);
  expect_bad_input([&] { file.read_at(7, bytes); }, {"short", "ends at byte 10", "4 bytes at 7"});
  expect_bad_input([&] { file.read_at(~std::uint64_t{0}, bytes); }, {"short", "beyond"});
}

TEST_F(Files, MissingFileNamesPathAndReason) {
  expect_bad_input([&] { InputFile::open(folder / "none"); }, {"none", "No such file"});
  expect_bad_input([&] { MappedFile::open(folder / "none"); }, {"none", "No such file"});
  expect_bad_input([&] { read_text_file(folder / "none", 10); }, {"none", "No such file"});
}

TEST_F(Files, FoldersDevicesAndPipesAreNoInput) {
  expect_bad_input([&] { InputFile::open(folder.path()); }, {"folder"});
  expect_bad_input([&] { InputFile::open("/dev/zero"); }, {"not a regular file"});
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_bad_input([&] { MappedFile::open(folder / "pipe"); }, {"not a regular file"});  // and does not wait for ever
}

TEST_F(Files, MapShowsTheWholeFile) {
  const MappedFile file = MappedFile::open(put("map", "abc"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), "abc");
}

TEST_F(Files, EmptyFileMapsToNothing) {
  const MappedFile file = MappedFile::open(put("empty", ""));
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(file.data(), nullptr);
  EXPECT_EQ(read_text_file(folder / "empty", 0), "");
}

TEST_F(Files, MovedFilesKeepTheirContent) {
  MappedFile first = MappedFile::open(put("move", "abc"));
  MappedFile second = std::move(first);
  EXPECT_EQ(second.size(), 3u);
  EXPECT_EQ(static_cast<char>(second.data()[2]), 'c');
  InputFile input = InputFile::open(folder / "move");
  InputFile other = std::move(input);
  std::byte byte{};
  other.read_at(1, {&byte, 1});
  EXPECT_EQ(static_cast<char>(byte), 'b');
}

TEST_F(Files, TextIsBounded) {
  const fs::path path = put("text", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  expect_bad_input([&] { read_text_file(path, 4); }, {"text", "5 bytes", "at most 4"});
}

TEST_F(Files, FullDiskIsReported) {
  expect_bad_input(
      [] {
        OutputFile file = OutputFile::create("/dev/full");
        file.write(bytes_of("x"));
        file.close();
      },
      {"/dev/full", "No space left"});
}

TEST_F(Files, CreateInAMissingFolderIsReported) {
  expect_bad_input([&] { OutputFile::create(folder / "no" / "file"); }, {"no/file", "No such file"});
}

TEST_F(Files, OutputCountsItsBytes) {
  OutputFile file = OutputFile::create(folder / "count");
  file.write(bytes_of("abc"));
  file.write("de", 2);
  EXPECT_EQ(file.bytes_written(), 5u);
  file.close();
  EXPECT_EQ(read_text_file(folder / "count", 10), "abcde");
}

TEST(PeakMemory, GrowsWithWhatIsTouched) {
  const std::uint64_t before = peak_memory_bytes();
  EXPECT_GT(before, std::uint64_t{1} << 20);
  std::vector<char> block(std::size_t{64} << 20, 1);
  EXPECT_GE(peak_memory_bytes(), block.size());
  EXPECT_GE(peak_memory_bytes(), before);
}

}  // namespace
}  // namespace fourfold
