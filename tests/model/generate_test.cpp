// Generation: how it ends, what it streams, what it reports.
#include "model/model_fixture.h"

namespace fourfold::test {
namespace {

const nlohmann::json& prompts() {
  static const nlohmann::json kPrompts = read_json(kDemoReference);
  return kPrompts;
}

GenerateResult greedy(const nlohmann::json& prompt, std::int64_t count) {
  return generate(demo_model(DType::f32), prompt["prompt_ids"].get<std::vector<std::int32_t>>(), count, {});
}

TEST(Generate, GreedyMatchesTheReference) {
  ASSERT_EQ(prompts().size(), 5u);
  for (const auto& prompt : prompts()) {
    const GenerateResult result = greedy(prompt, 48);
    EXPECT_EQ(result.ids, prompt["greedy_ids"].get<std::vector<std::int32_t>>());
    EXPECT_EQ(result.prompt_ids, prompt["prompt_ids"].get<std::vector<std::int32_t>>());
    EXPECT_EQ(result.text, prompt["greedy_text"].get<std::string>());
  }
}

TEST(Generate, StopsAtTheLimit) { EXPECT_EQ(greedy(prompts()[0], 5).ids.size(), 5u); }

TEST(Generate, TheStopIdIsInTheIdsAndNotInTheText) {
  const GenerateResult result = greedy(prompts()[2], 48);
  ASSERT_EQ(result.ids.size(), 12u);
  EXPECT_EQ(result.ids.back(), 0);
  EXPECT_EQ(result.text.find("<|"), std::string::npos);
}

TEST(Generate, StopsAtTheContext) {
  ModelOptions options;
  options.context = 8;
  const auto model = Model::load(kData + "tiny/qwen3_moe", test_backend(), options);
  const std::vector<std::int32_t> prompt{1, 2, 3, 4, 5};
  // positions 5, 6 and 7 take three ids; the one that the eighth position's logits give is the last
  EXPECT_EQ(generate(*model, prompt, 100, {}).ids.size(), 4u);
}

TEST(Generate, StreamsTheTextInPieces) {
  std::string streamed;
  int pieces = 0;
  const auto ids = prompts()[0]["prompt_ids"].get<std::vector<std::int32_t>>();
  const GenerateResult result = generate(demo_model(DType::f32), ids, 20, {}, [&](std::string_view piece) {
    streamed += piece;
    ++pieces;
  });
  EXPECT_EQ(streamed, result.text);
  EXPECT_GT(pieces, 10);
}

TEST(Generate, ReportsSpeedAndMemory) {
  const GenerateResult result = greedy(prompts()[0], 10);
  EXPECT_GT(result.prefill_tokens_per_second, 0);
  EXPECT_GT(result.decode_tokens_per_second, 0);
  EXPECT_GT(result.peak_memory_bytes, demo_model(DType::f32).weight_bytes());
  EXPECT_GT(result.load_seconds, 0);
}

TEST(Generate, ASeedRepeats) {
  SamplingOptions sampling;
  sampling.temperature = 1.0f;
  sampling.seed = 7;
  const auto ids = prompts()[0]["prompt_ids"].get<std::vector<std::int32_t>>();
  const auto first = generate(demo_model(DType::f32), ids, 20, sampling).ids;
  EXPECT_EQ(generate(demo_model(DType::f32), ids, 20, sampling).ids, first);
  sampling.seed = 8;
  EXPECT_NE(generate(demo_model(DType::f32), ids, 20, sampling).ids, first);
}

TEST(Generate, RefusesAnEmptyPromptAndNoTokens) {
  Model& model = demo_model(DType::f32);
  const std::vector<std::int32_t> none, one{1}, many(2049, 1);
  EXPECT_EQ(error_of([&] { generate(model, none, 5, {}); }).first, 2);
  EXPECT_EQ(error_of([&] { generate(model, one, 0, {}); }).first, 2);
  EXPECT_EQ(error_of([&] { generate(model, many, 5, {}); }).first, 2);
}

}  // namespace
}  // namespace fourfold::test
