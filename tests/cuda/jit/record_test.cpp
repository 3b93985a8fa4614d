// Sealed files: what was written comes back, and no changed byte passes.
#include "cuda/jit/record.h"

#include <gtest/gtest.h>

#include <functional>

#include "fourfold/error.h"

namespace fourfold::cuda {
namespace {

constexpr const char* kMagic = "TESTREC1";

std::vector<std::byte> sample() {
  RecordWriter writer(kMagic);
  writer.number(0x0102030405060708ull);
  writer.text("words");
  writer.bytes(std::vector<std::byte>{std::byte{1}, std::byte{0}});
  writer.text("");
  return writer.seal();
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return {};
}

TEST(Record, FieldsComeBackInOrder) {
  const auto file = sample();
  RecordReader reader(file, kMagic);
  EXPECT_EQ(reader.number(), 0x0102030405060708ull);
  EXPECT_EQ(reader.text(), "words");
  EXPECT_EQ(reader.bytes().size(), 2u);
  EXPECT_EQ(reader.text(), "");
  EXPECT_NO_THROW(reader.finish());
}

TEST(Record, NumbersAreLittleEndian) {
  const auto file = sample();
  EXPECT_EQ(file[8], std::byte{8});
  EXPECT_EQ(file[15], std::byte{1});
}

TEST(Record, EveryFlippedByteIsNoticed) {
  const auto good = sample();
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto file = good;
    file[at] ^= std::byte{0x10};
    EXPECT_THROW(RecordReader(file, kMagic), Error) << "byte " << at;
  }
}

TEST(Record, EveryLengthButTheRightOneIsNoticed) {
  auto file = sample();
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_THROW(RecordReader(std::span(file).first(length), kMagic), Error) << length << " bytes";
  file.push_back(std::byte{0});
  EXPECT_THROW(RecordReader(file, kMagic), Error);
}

TEST(Record, AnotherKindOfFileIsNamed) {
  const auto file = sample();
  EXPECT_NE(failure_of([&] { RecordReader(file, "TESTREC2"); }).find("'TESTREC2'"), std::string::npos);
}

// The digest is right in these: whoever writes a file can also seal it.
TEST(Record, SealedNonsenseStaysInBounds) {
  RecordWriter huge(kMagic);
  huge.number(~0ull);
  const auto file = huge.seal();
  EXPECT_NE(failure_of([&] { RecordReader(file, kMagic).bytes(); }).find("18446744073709551615"), std::string::npos);
  EXPECT_THROW(RecordReader(file, kMagic).count(8), Error);
  RecordReader reader(file, kMagic);
  EXPECT_THROW(reader.finish(), Error);
  reader.number();
  EXPECT_NO_THROW(reader.finish());
  EXPECT_THROW(reader.number(), Error);
}

TEST(Record, CountIsBoundedByWhatIsLeft) {
  RecordWriter writer(kMagic);
  writer.number(2);
  writer.number(0);
  const auto file = writer.seal();
  EXPECT_EQ(RecordReader(file, kMagic).count(4), 2u);
  EXPECT_THROW(RecordReader(file, kMagic).count(5), Error);
}

}  // namespace
}  // namespace fourfold::cuda
