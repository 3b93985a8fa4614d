// The demo model's tokenizer against reference encodings, and properties that hold for any byte string.
#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "fourfold/error.h"
#include "support/files.h"
#include "tiny_tokenizer.h"

namespace fourfold {
namespace {

using support::read_bytes;

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

const std::string kSource = FOURFOLD_SOURCE_DIR;

std::shared_ptr<const Tokenizer> demo() {
  static const auto tokenizer = Tokenizer::load(kSource + "/models/moe-13m/tokenizer.json");
  return tokenizer;
}

TEST(Tokenizer, EncodesEveryReferenceCase) {
  const Json cases = Json::parse(read_bytes(kSource + "/tests/data/moe-13m-eval/tokenizer_cases.json"));
  ASSERT_EQ(cases.size(), 10u);
  for (const Json& item : cases)
    EXPECT_EQ(demo()->encode(item.at("text").get<std::string>()), item.at("ids").get<Ids>()) << item.at("text");
}

TEST(Tokenizer, DecodesEveryReferenceCase) {
  const Json cases = Json::parse(read_bytes(kSource + "/tests/data/moe-13m-eval/tokenizer_cases.json"));
  ASSERT_EQ(cases.size(), 10u);
  for (const Json& item : cases)
    EXPECT_EQ(demo()->decode(item.at("ids").get<Ids>()), item.at("decoded").get<std::string>());
}

TEST(Tokenizer, EncodesTheHeldOutTextAsTheReferenceDoes) {
  const Json reference = Json::parse(read_bytes(kSource + "/tests/data/moe-13m-eval/perplexity.json"));
  // The reference ends every document with the token; the file has it only between documents.
  const Ids ids = demo()->encode(read_bytes(kSource + "/models/moe-13m/heldout.txt") + "<|endoftext|>");
  EXPECT_EQ(ids.size(), reference.at("n_ids").get<std::size_t>());
  const Ids first = reference.at("first_ids").get<Ids>();
  ASSERT_EQ(first.size(), 64u);
  ASSERT_GE(ids.size(), first.size());
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 64), first);
}

TEST(Tokenizer, HeldOutTextRoundTrips) {
  const std::string text = read_bytes(kSource + "/models/moe-13m/heldout.txt");
  ASSERT_GT(text.size(), 100'000u);
  EXPECT_EQ(demo()->decode(demo()->encode(text)), text);
}

TEST(Tokenizer, EveryByteRoundTripsAlone) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const Ids ids = demo()->encode(text);
    EXPECT_EQ(ids.size(), 1u) << byte;
    EXPECT_EQ(demo()->decode(ids), text) << byte;
  }
}

TEST(Tokenizer, RandomBytesRoundTrip) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (std::size_t i = random() % 300; i > 0; --i) text += static_cast<char>(random());
    EXPECT_EQ(demo()->decode(demo()->encode(text)), text) << "round " << round;
  }
}

TEST(Tokenizer, InvalidBytesDoNotChangeTheirNeighbours) {
  Ids expected = demo()->encode("In the beginning");
  const Ids bad = demo()->encode("\xff"), rest = demo()->encode(" God created");
  expected.insert(expected.end(), bad.begin(), bad.end());
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(demo()->encode("In the beginning\xff God created"), expected);
}

TEST(Tokenizer, SizeIsTheLargestIdPlusOne) { EXPECT_EQ(demo()->size(), 4096); }

TEST(Tokenizer, GapsPrintAsNothing) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = {{{"id", 400}, {"content", "<end>"}, {"special", true}}};
  const auto tokenizer = parse_tokenizer(json.dump(), "t");
  EXPECT_EQ(tokenizer->size(), 401);
  EXPECT_EQ(tokenizer->decode(Ids{'a', 300, 399, 'b', 400}), "ab<end>");
}

TEST(Tokenizer, IdsBeyondTheTokenizerPrintAsNothing) { EXPECT_EQ(demo()->decode(Ids{4096, 151'935}), ""); }

TEST(Tokenizer, NegativeIdsAreRefused) {
  try {
    demo()->decode(Ids{-1});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("-1"), std::string::npos);
  }
}

TEST(Tokenizer, TheLongestAddedTokenWins) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = {{{"id", 300}, {"content", "<a"}}, {{"id", 301}, {"content", "<a>"}}};
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("x<a><a<"), (Ids{'x', 301, 300, '<'}));
}

TEST(Tokenizer, RawAddedTokensAreFoundBeforeNormalizedOnes) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = {{{"id", 300}, {"content", "ab"}, {"normalized", true}},
                          {{"id", 301}, {"content", "bc"}, {"normalized", false}}};
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("abc ab"), (Ids{'a', 301, ' ', 300}));
}

TEST(Tokenizer, MergesInBothSpellingsMeanTheSame) {
  Json strings = tiny_tokenizer(), pairs = tiny_tokenizer();
  strings["model"]["merges"] = {"a b", "ab c"};
  pairs["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
  for (Json* json : {&strings, &pairs}) {
    (*json)["model"]["vocab"]["ab"] = 256;
    (*json)["model"]["vocab"]["abc"] = 257;
    EXPECT_EQ(parse_tokenizer(json->dump(), "t")->encode("abcab"), (Ids{257, 256}));
  }
}

TEST(Tokenizer, LowerRanksMergeFirst) {
  Json json = tiny_tokenizer();
  json["model"]["vocab"].update({{"ab", 256}, {"bc", 257}});
  json["model"]["merges"] = {"b c", "a b"};
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("abc"), (Ids{'a', 257}));
}

TEST(Tokenizer, IgnoreMergesKeepsAPieceThatIsAToken) {
  Json json = tiny_tokenizer();
  json["model"]["vocab"]["xyz"] = 256;
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("xyz"), (Ids{'x', 'y', 'z'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("xyz"), (Ids{256}));
}

TEST(Tokenizer, PrefixSpaceIsAddedOnlyWhereThereIsNone) {
  Json json = tiny_tokenizer();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = parse_tokenizer(json.dump(), "t");
  EXPECT_EQ(tokenizer->encode("x"), (Ids{' ', 'x'}));
  EXPECT_EQ(tokenizer->encode(" x"), (Ids{' ', 'x'}));
}

TEST(Tokenizer, TheGpt2PatternCutsBeforeMerging) {
  Json json = tiny_tokenizer();
  json["model"]["vocab"]["a1"] = 256;
  json["model"]["merges"] = {"a 1"};
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("a1"), (Ids{256}));
  json["pre_tokenizer"]["use_regex"] = true;
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("a1"), (Ids{'a', '1'}));
}

TEST(Tokenizer, SeveralSplitsApplyOneAfterTheOther) {
  Json json = tiny_tokenizer();
  json["model"]["vocab"].update({{"12", 256}, {"1234", 257}, {"34", 258}, {"x1", 259}});
  json["model"]["merges"] = {"1 2", "3 4", "12 34", "x 1"};
  const auto split = [](const char* pattern) {
    return Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", Json::array({split("\\p{N}+"), split("\\p{N}{1,2}"),
                                     Json{{"type", "ByteLevel"}, {"use_regex", false}, {"add_prefix_space", false}}})}};
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("x1234"), (Ids{'x', 256, 258}));
}

TEST(Tokenizer, NfcNormalisesTextButNotRawAddedTokens) {
  Json json = tiny_tokenizer();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"] = {{{"id", 300}, {"content", "<e\u0301>"}, {"normalized", false}}};
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("e\u0301\xff<e\u0301>"), (Ids{0xc3, 0xa9, 0xff, 300}));
}

TEST(Tokenizer, TheTemplateSurroundsTheText) {
  Json json = tiny_tokenizer();
  json["added_tokens"] = {{{"id", 300}, {"content", "<s>"}}, {{"id", 301}, {"content", "</s>"}}};
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [300]}, "</s>": {"id": "</s>", "ids": [301]}}})");
  EXPECT_EQ(parse_tokenizer(json.dump(), "t")->encode("x"), (Ids{300, 'x', 301}));
}

// A quadratic merge would need minutes: 10^12 steps. The bound is two orders above what the heap needs.
TEST(Tokenizer, AMegabyteWithoutABlankIsNotQuadratic) {
  std::string text;
  for (int i = 0; i < 1 << 20; ++i) text += static_cast<char>('a' + i % 26);
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = demo()->encode(text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(demo()->decode(ids), text);
}

TEST(Tokenizer, AMegabyteOfBlanksAndLineEndsIsFine) {
  const std::string blanks(1 << 20, ' ');
  for (const std::string& text : {blanks, blanks + "x", blanks + "\n", std::string(1 << 20, '\n')})
    EXPECT_EQ(demo()->decode(demo()->encode(text)), text);
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const std::string text = read_bytes(kSource + "/models/moe-13m/heldout.txt").substr(0, 20'000);
  const Ids expected = demo()->encode(text);
  std::array<Ids, 4> got;
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = demo()->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, AMissingFileIsBadInput) {
  try {
    Tokenizer::load(kSource + "/no/such/tokenizer.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("no/such/tokenizer.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace fourfold
