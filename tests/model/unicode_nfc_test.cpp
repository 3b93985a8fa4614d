// NFC against another implementation (CPython's unicodedata, Unicode 14.0) over every code point, and the rules by
// name.
#include "model/unicode_nfc.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace fourfold {
namespace {

std::string utf8(std::uint32_t code) {
  std::string out;
  const auto push = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xc0 + code / 64);
    push(0x80 + code % 64);
  } else if (code < 0x10000) {
    push(0xe0 + code / 4096);
    push(0x80 + code / 64 % 64);
    push(0x80 + code % 64);
  } else {
    push(0xf0 + code / 262144);
    push(0x80 + code / 4096 % 64);
    push(0x80 + code / 64 % 64);
    push(0x80 + code % 64);
  }
  return out;
}

/// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const std::string& bytes) {
    for (const char c : bytes) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ull;
};

TEST(UnicodeNfc, EveryCodePointAgreesWithAnotherImplementation) {
  Digest digest;
  for (std::uint32_t code = 0; code < 0x110000; ++code)
    if (code < 0xd800 || code > 0xdfff) digest.add(to_nfc(utf8(code)));
  EXPECT_EQ(digest.value(), 0x23fc43766d7c2eb9u);
}

// "o", the character, an acute above, a dot below, the character again: order, composition and blocking at once.
TEST(UnicodeNfc, EveryCodePointAmongMarksAgreesWithAnotherImplementation) {
  Digest digest;
  for (std::uint32_t code = 0; code < 0x30000; ++code)
    if (code < 0xd800 || code > 0xdfff) digest.add(to_nfc("o" + utf8(code) + utf8(0x301) + utf8(0x323) + utf8(code)));
  EXPECT_EQ(digest.value(), 0x3d975a3628b37ee4u);
}

TEST(UnicodeNfc, LettersAndMarksCompose) { EXPECT_EQ(to_nfc("e\u0301"), "\u00e9"); }

TEST(UnicodeNfc, MarksAreOrderedBeforeTheyCompose) { EXPECT_EQ(to_nfc("o\u0302\u0323"), "\u1ed9"); }

TEST(UnicodeNfc, SingletonsAreReplaced) { EXPECT_EQ(to_nfc("\u212b"), "\u00c5"); }

TEST(UnicodeNfc, ExclusionsStayApart) { EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c"); }

TEST(UnicodeNfc, HangulComposes) { EXPECT_EQ(to_nfc("\u1112\u1161\u11ab"), "\ud55c"); }

TEST(UnicodeNfc, AMarkWithoutABaseStays) { EXPECT_EQ(to_nfc("\u0301e"), "\u0301e"); }

TEST(UnicodeNfc, EmptyTextStaysEmpty) { EXPECT_EQ(to_nfc(""), ""); }

TEST(UnicodeNfc, ALongRunOfMarksIsNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += i % 2 ? "\u0323" : "\u0307";
  const std::string once = to_nfc(text);
  EXPECT_TRUE(once.starts_with("\u1ea1\u0323"));  // dots below sort before dots above, and the first one composes
  EXPECT_EQ(to_nfc(once), once);
}

}  // namespace
}  // namespace fourfold
