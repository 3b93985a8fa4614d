// Cutting by validity and by pattern: pieces in order, nothing lost, limits are errors.
#include "model/text_split.h"

#include <gtest/gtest.h>

#include "fourfold/error.h"

namespace fourfold {
namespace {

using Pieces = std::vector<std::string>;

/// Opaque pieces are marked with a "!" in front.
Pieces texts(const std::vector<TextPiece>& pieces) {
  Pieces out;
  for (const TextPiece& piece : pieces) out.push_back((piece.opaque ? "!" : "") + std::string(piece.text));
  return out;
}

Pieces valid(std::string_view text) {
  std::vector<TextPiece> pieces;
  split_valid_utf8(text, pieces);
  return texts(pieces);
}

Pieces split(const std::string& pattern, std::string_view text, bool literal = false) {
  std::vector<TextPiece> pieces;
  PatternSplitter(pattern, literal, "t").split(text, pieces);
  return texts(pieces);
}

TEST(SplitValidUtf8, ValidTextIsOnePiece) {
  const std::string text = "a\u00e9\u6771\U0001f642\U0010ffff";
  EXPECT_EQ(valid(text), Pieces{text});
}

TEST(SplitValidUtf8, EveryInvalidFormIsOpaqueByteByByte) {
  for (const char* bad : {"\x80", "\xff", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe6\x9d", "\xf0\x9f\x99"}) {
    const std::string text(bad);
    Pieces expected{"a"};
    for (const char c : text) expected.push_back(std::string("!") + c);
    expected.push_back("b");
    EXPECT_EQ(valid("a" + text + "b"), expected);
  }
}

TEST(PatternSplitter, MatchesAndWhatLiesBetweenAreIsolated) {
  EXPECT_EQ(split("[0-9]+", "ab12c3"), (Pieces{"ab", "12", "c", "3"}));
}

TEST(PatternSplitter, TextWithoutAMatchIsOnePiece) { EXPECT_EQ(split("x", "abc"), Pieces{"abc"}); }

TEST(PatternSplitter, EmptyTextHasNoPieces) { EXPECT_EQ(split("x*", ""), Pieces{}); }

TEST(PatternSplitter, EmptyMatchesCutBetweenCharacters) {
  EXPECT_EQ(split("(?=\u00e9)", "a\u00e9b"), (Pieces{"a", "\u00e9b"}));
  EXPECT_EQ(split("x*", "\u00e9xb"), (Pieces{"\u00e9", "x", "b"}));
}

TEST(PatternSplitter, ClassesFollowUnicode) { EXPECT_EQ(split("\\s", "a\u2003b"), (Pieces{"a", "\u2003", "b"})); }

TEST(PatternSplitter, ALiteralPatternIsPlainText) { EXPECT_EQ(split("a.", "xa.b", true), (Pieces{"x", "a.", "b"})); }

TEST(PatternSplitter, ABadPatternIsBadInput) {
  try {
    PatternSplitter("(", false, "file: key");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("file: key"), std::string::npos);
  }
}

TEST(PatternSplitter, RunawayBacktrackingIsAnError) {
  // Doubles with every character; 60 of them are beyond any step limit. A "b" must be there, or nothing is tried.
  std::vector<TextPiece> pieces;
  const PatternSplitter splitter("(?:a|a)*b", false, "file: key");
  std::string text(60, 'a');
  text += "cb";
  try {
    splitter.split(text, pieces);
    FAIL() << "finished";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
  }
}

}  // namespace
}  // namespace fourfold
