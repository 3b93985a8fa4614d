// Perplexity: windows, targets, and the demo model's value on its held-out text.
#include <cmath>

#include "model/log_likelihood.h"
#include "model/model_fixture.h"

namespace fourfold::test {
namespace {

std::string held_out() { return support::read_bytes(kDemoModel + "/heldout.txt"); }

TEST(Evaluate, OneWindowIsTheMeanOfThePromptsOwnValues) {
  // a window over a prompt of the reference has exactly the reference's per-token values
  for (const auto& prompt : read_json(kDemoReference)) {
    const auto nll = prompt["nll"].get<std::vector<double>>();
    double mean = 0;
    for (const double value : nll) mean += value / static_cast<double>(nll.size());
    const EvalResult result =
        evaluate(demo_model(DType::f32), prompt["prompt"].get<std::string>(), static_cast<std::int64_t>(nll.size()));
    EXPECT_EQ(result.tokens, static_cast<std::int64_t>(nll.size()));
    EXPECT_NEAR(result.mean_nll, mean, 4e-4);  // two logits within 2e-4 each
    EXPECT_DOUBLE_EQ(result.perplexity, std::exp(result.mean_nll));
  }
}

TEST(Evaluate, WindowsDoNotOverlapAndProgressCountsThem) {
  std::vector<std::int64_t> done;
  std::int64_t total = 0;
  const std::string text = held_out().substr(0, 4000);
  const auto ids = static_cast<std::int64_t>(demo_model(DType::f32).tokenizer()->encode(text).size());
  const EvalResult result = evaluate(demo_model(DType::f32), text, 64, [&](std::int64_t at, std::int64_t of) {
    done.push_back(at);
    total = of;
  });
  ASSERT_GT(ids, 640);
  EXPECT_EQ(total, (ids - 1) / 64);
  EXPECT_EQ(static_cast<std::int64_t>(done.size()), total);
  EXPECT_EQ(done.back(), total);
  EXPECT_EQ(result.tokens, total * 64);
  EXPECT_EQ(result.window, 64);
}

TEST(Evaluate, Bf16StaysWithinItsRoundingsOfF32) {
  const std::string text = held_out().substr(0, 30000);
  const EvalResult exact = evaluate(demo_model(DType::f32), text, 512);
  const EvalResult rounded = evaluate(demo_model(DType::bf16), text, 512);
  ASSERT_EQ(rounded.tokens, exact.tokens);
  ASSERT_GT(exact.tokens, 4000);
  // a token's value moves by some 0.05 (decoder_test.cpp: 6.3e-3 of a logit's size); the mean of n of either sign by
  // 0.05 / sqrt(n); four deviations
  EXPECT_NEAR(rounded.mean_nll, exact.mean_nll, 4 * 0.05 / std::sqrt(static_cast<double>(exact.tokens)));
}

TEST(Evaluate, TheWholeHeldOutTextHasTheReferencePerplexity) {
  const nlohmann::json reference = read_json(kData + "moe-13m-eval/perplexity.json");
  const EvalResult result = evaluate(demo_model(DType::bf16), held_out(), 512);
  EXPECT_EQ(result.tokens, reference["tokens"].get<std::int64_t>());
  EXPECT_NEAR(result.mean_nll, reference["mean_nll"].get<double>(), 0.002);
}

TEST(Evaluate, ATextShorterThanAWindowNamesBothSizes) {
  const auto [code, text] = error_of([] { evaluate(demo_model(DType::f32), "In the beginning", 512); });
  EXPECT_EQ(code, 2);
  EXPECT_NE(text.find("3 ids"), std::string::npos) << text;
  EXPECT_NE(text.find("513"), std::string::npos) << text;
}

TEST(Evaluate, RefusesWindowsOutsideTheContextAndModelsWithoutATokenizer) {
  EXPECT_EQ(error_of([] { evaluate(demo_model(DType::f32), "text", 0); }).first, 2);
  EXPECT_EQ(error_of([] { evaluate(demo_model(DType::f32), "text", 2049); }).first, 2);
  const auto tiny = load(kData + "tiny/qwen3_moe", DType::f32);
  EXPECT_EQ(error_of([&] { evaluate(*tiny, "text", 2); }).first, 4);
}

TEST(LogLikelihood, MatchesTheDefinitionAndKeepsNan) {
  const std::vector<float> row{0.0f, 1.0f, -2.0f, 80.0f};
  const double sum = std::exp(-80.0) + std::exp(-79.0) + std::exp(-82.0) + 1;
  EXPECT_NEAR(negative_log_likelihood(row, 1), std::log(sum) + 79, 1e-12);
  const std::vector<float> bad{0.0f, NAN};
  EXPECT_TRUE(std::isnan(negative_log_likelihood(bad, 0)));
  const std::vector<std::int32_t> outside{4};
  EXPECT_EQ(error_of([&] { sum_negative_log_likelihood(row, outside, 4); }).first, 2);
}

}  // namespace
}  // namespace fourfold::test
