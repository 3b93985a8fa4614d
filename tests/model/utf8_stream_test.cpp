// A stream of bytes comes out as valid UTF-8 in whole characters, however it is cut.
#include "model/utf8_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace fourfold::test {
namespace {

/// The pieces that come out when `text` goes in `step` bytes at a time.
std::vector<std::string> pieces_of(const std::string& text, std::size_t step) {
  std::vector<std::string> pieces;
  Utf8Stream stream([&](std::string_view piece) { pieces.emplace_back(piece); });
  for (std::size_t at = 0; at < text.size(); at += step) stream.append(std::string_view(text).substr(at, step));
  stream.finish();
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

TEST(Utf8Stream, KeepsValidTextHoweverItIsCut) {
  const std::string text = "a\u00e9\u20ac\U0001f600z";
  for (std::size_t step = 1; step <= text.size(); ++step) EXPECT_EQ(joined(pieces_of(text, step)), text);
}

TEST(Utf8Stream, HoldsACharacterBackUntilItIsWhole) {
  EXPECT_EQ(pieces_of("a\u20acb", 1), (std::vector<std::string>{"a", "\u20ac", "b"}));
}

TEST(Utf8Stream, ReplacesWhatCanNeverBeACharacter) {
  const std::string sign = "\ufffd";
  // Unicode 15, table 3-8 and its neighbours: lone continuation, overlong, surrogate, too large, cut short
  EXPECT_EQ(joined(pieces_of("\x80", 1)), sign);
  EXPECT_EQ(joined(pieces_of("\xc0\xaf", 1)), sign + sign);
  EXPECT_EQ(joined(pieces_of("\xed\xa0\x80", 1)), sign + sign + sign);
  EXPECT_EQ(joined(pieces_of("\xf4\x90\x80\x80", 1)), sign + sign + sign + sign);
  EXPECT_EQ(joined(pieces_of("\xe2\x82"
                             "a",
                             1)),
            sign + "a");
  EXPECT_EQ(joined(pieces_of("\xf0\x9f\x98", 1)), sign);
  EXPECT_EQ(joined(pieces_of("\xff"
                             "ok",
                             1)),
            sign + "ok");
}

}  // namespace
}  // namespace fourfold::test
