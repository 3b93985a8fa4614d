// Every malformed or foreign tokenizer.json is refused by the right code, naming the file and the key.
#include "model/tokenizer_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "fourfold/error.h"
#include "model/tokenizer.h"
#include "tiny_tokenizer.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

struct Refusal {
  const char* name;
  ErrorCode code;
  const char* text;  // must be in the message, besides the file's name
  std::function<void(Json&)> damage;
};

const Json kSplit = {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}, {"behavior", "Isolated"}};
constexpr auto kBad = ErrorCode::bad_input;
constexpr auto kForeign = ErrorCode::unsupported;

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> table = {
      {"NoModel", kBad, "model is missing", [](Json& j) { j.erase("model"); }},
      {"ModelNoObject", kBad, "model is number", [](Json& j) { j["model"] = 3; }},
      {"NoVocab", kBad, "model.vocab is missing", [](Json& j) { j["model"].erase("vocab"); }},
      {"VocabArray", kBad, "model.vocab is array", [](Json& j) { j["model"]["vocab"] = Json::array(); }},
      {"VocabEmpty", kBad, "model.vocab", [](Json& j) { j["model"]["vocab"] = Json::object(); }},
      {"EmptyToken", kBad, "empty token", [](Json& j) { j["model"]["vocab"][""] = 300; }},
      {"IdText", kBad, "vocab[\"zz\"]", [](Json& j) { j["model"]["vocab"]["zz"] = "7"; }},
      {"IdNegative", kBad, "-1", [](Json& j) { j["model"]["vocab"]["zz"] = -1; }},
      {"IdFraction", kBad, "vocab[\"zz\"]", [](Json& j) { j["model"]["vocab"]["zz"] = 1.5; }},
      {"IdHuge", kBad, "4294967296", [](Json& j) { j["model"]["vocab"]["zz"] = 4294967296; }},
      {"IdBeyond63Bits", kBad, "outside", [](Json& j) { j["model"]["vocab"]["zz"] = 18446744073709551615u; }},
      {"IdTwice", kBad, "also the id of", [](Json& j) { j["model"]["vocab"]["zz"] = 65; }},
      {"ByteMissing", kBad, "0x41", [](Json& j) { j["model"]["vocab"].erase("A"); }},
      {"NoMerges", kBad, "model.merges is missing", [](Json& j) { j["model"].erase("merges"); }},
      {"MergesText", kBad, "model.merges is string", [](Json& j) { j["model"]["merges"] = "a b"; }},
      {"MergeNumber", kBad, "merges[0]", [](Json& j) { j["model"]["merges"] = {1}; }},
      {"MergeOneWord", kBad, "merges[0]", [](Json& j) { j["model"]["merges"] = {"ab"}; }},
      {"MergeThreeWords", kBad, "merges[0]", [](Json& j) { j["model"]["merges"] = {"a b c"}; }},
      {"MergeThreeParts", kBad, "has 3 parts",
       [](Json& j) {
         j["model"]["merges"] = {{"a", "b", "c"}};
       }},
      {"MergeUnknownPart", kBad, "\"qq\" is not in", [](Json& j) { j["model"]["merges"] = {"a qq"}; }},
      {"MergeUnknownResult", kBad, "\"ab\" is not in", [](Json& j) { j["model"]["merges"] = {"a b"}; }},
      {"ModelType", kForeign, "Unigram", [](Json& j) { j["model"]["type"] = "Unigram"; }},
      {"ByteFallback", kForeign, "byte_fallback", [](Json& j) { j["model"]["byte_fallback"] = true; }},
      {"Dropout", kForeign, "dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"SubwordPrefix", kForeign, "##", [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }},
      {"WordSuffix", kForeign, "</w>", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
      {"IgnoreMergesText", kBad, "ignore_merges", [](Json& j) { j["model"]["ignore_merges"] = "yes"; }},
      {"AddedNoArray", kBad, "added_tokens is object", [](Json& j) { j["added_tokens"] = Json::object(); }},
      {"AddedNoId", kBad, "added_tokens[0].id",
       [](Json& j) {
         j["added_tokens"] = {{{"content", "<x>"}}};
       }},
      {"AddedNoContent", kBad, "added_tokens[0].content",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 300}}};
       }},
      {"AddedEmpty", kBad, "is empty",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 300}, {"content", ""}}};
       }},
      {"AddedTakenId", kBad, "also the id",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 65}, {"content", "<x>"}}};
       }},
      {"AddedHugeId", kBad, "outside",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 1 << 24}, {"content", "<x>"}}};
       }},
      {"AddedLstrip", kForeign, "lstrip",
       [](Json& j) {
         j["added_tokens"] = {{{"id", 300}, {"content", "<x>"}, {"lstrip", true}}};
       }},
      {"Normalizer", kForeign, "Lowercase",
       [](Json& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       }},
      {"NormalizerNoType", kBad, "normalizer.type", [](Json& j) { j["normalizer"] = Json::object(); }},
      {"NoPreTokenizer", kForeign, "pre_tokenizer has no ByteLevel", [](Json& j) { j["pre_tokenizer"] = nullptr; }},
      {"SplitWithoutByteLevel", kForeign, "no ByteLevel", [](Json& j) { j["pre_tokenizer"] = kSplit; }},
      {"Metaspace", kForeign, "Metaspace",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"SplitAfterByteLevel", kForeign, "pretokenizers[1]",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {j["pre_tokenizer"], kSplit}}};
       }},
      {"SplitBehavior", kForeign, "Removed",
       [](Json& j) {
         Json split = kSplit;
         split["behavior"] = "Removed";
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, j["pre_tokenizer"]}}};
       }},
      {"SplitNoPattern", kBad, "pattern",
       [](Json& j) {
         Json split = kSplit;
         split["pattern"] = Json::object();
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, j["pre_tokenizer"]}}};
       }},
      {"SplitBadPattern", kBad, "does not compile",
       [](Json& j) {
         Json split = kSplit;
         split["pattern"]["Regex"] = "(";
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, j["pre_tokenizer"]}}};
       }},
      {"NoDecoder", kForeign, "decoder", [](Json& j) { j["decoder"] = nullptr; }},
      {"Decoder", kForeign, "WordPiece",
       [](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       }},
      {"PostProcessor", kForeign, "Bert",
       [](Json& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {"TemplateNoText", kBad, "does not appear",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::array()}};
       }},
      {"TemplateUnknownToken", kBad, "<s>",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
                                {"special_tokens", Json::object()}};
       }},
  };
  return table;
}

class TokenizerRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(TokenizerRefusal, NamesFileAndKey) {
  Json json = tiny_tokenizer();
  ASSERT_NO_THROW(parse_tokenizer(json.dump(), "folder/tokenizer.json"));
  GetParam().damage(json);
  try {
    parse_tokenizer(json.dump(), "folder/tokenizer.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GetParam().code) << error.what();
    const std::string text = error.what();
    EXPECT_NE(text.find("folder/tokenizer.json"), std::string::npos) << text;
    EXPECT_NE(text.find(GetParam().text), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, TokenizerRefusal, testing::ValuesIn(refusals()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(TokenizerFile, EveryTruncationOfTheTextIsBadInput) {
  const std::string text = tiny_tokenizer().dump();
  int refused = 0;
  for (std::size_t length = 0; length < text.size(); length += 7) {
    try {
      parse_tokenizer_file(std::string_view(text).substr(0, length), "t");
      ADD_FAILURE() << "accepted " << length << " of " << text.size() << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(TokenizerFile, InvalidUtf8InTheFileIsBadInput) {
  EXPECT_THROW(parse_tokenizer_file("{\"model\": \"\xff\"}", "t"), Error);
}

}  // namespace
}  // namespace fourfold
