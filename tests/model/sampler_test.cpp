// Which ids may come out, how often, and that the same seed gives the same ones.
#include "model/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "fourfold/error.h"

namespace fourfold {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kDraws = 20'000;

std::map<std::int32_t, int> draw_many(const SamplingOptions& options, const std::vector<float>& logits,
                                      const std::vector<std::int32_t>& history = {}) {
  Sampler sampler(options, static_cast<std::int64_t>(logits.size()));
  std::map<std::int32_t, int> count;
  for (int i = 0; i < kDraws; ++i) ++count[sampler.sample(logits, history)];
  return count;
}

// A count of n independent draws with probability p has standard deviation sqrt(n p (1 - p)). Six of them are passed
// by chance once in 5e8 comparisons, and the seed is fixed.
void expect_frequency(int count, double p) {
  EXPECT_NEAR(count, kDraws * p, 6 * std::sqrt(kDraws * p * (1 - p))) << "p = " << p;
}

ErrorCode code_of(const SamplingOptions& options, std::string& text) {
  try {
    Sampler sampler(options, 4);
  } catch (const Error& error) {
    text = error.what();
    return error.code();
  }
  return ErrorCode::internal;
}

TEST(Sampler, GreedyTakesTheLargest) {
  Sampler sampler({}, 4);
  EXPECT_EQ(sampler.sample(std::vector<float>{-3, 2, 5, 1}, {}), 2);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler sampler({}, 5);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 7, 0, 7, 7}, {}), 1);
}

TEST(Sampler, GreedyTreatsSignedZerosAsEqual) {
  Sampler sampler({}, 2);
  EXPECT_EQ(sampler.sample(std::vector<float>{-0.0f, 0.0f}, {}), 0);
}

TEST(Sampler, TemperatureOneDrawsBySoftmax) {
  const auto count = draw_many({.temperature = 1, .seed = 1}, {std::log(1.0f), std::log(2.0f), std::log(5.0f)});
  ASSERT_EQ(count.size(), 3u);
  expect_frequency(count.at(0), 1 / 8.0);
  expect_frequency(count.at(1), 2 / 8.0);
  expect_frequency(count.at(2), 5 / 8.0);
}

TEST(Sampler, TemperatureTwoFlattens) {
  const auto count = draw_many({.temperature = 2, .seed = 2}, {0, std::log(4.0f)});
  expect_frequency(count.at(1), 2 / 3.0);
}

TEST(Sampler, ATinyTemperatureIsGreedy) {
  const auto count = draw_many({.temperature = 1e-30f, .seed = 3}, {1, 1.001f, 0});
  EXPECT_EQ(count.size(), 1u);
  EXPECT_TRUE(count.contains(1));
}

TEST(Sampler, TopKKeepsExactlyK) {
  const auto count = draw_many({.temperature = 1, .top_k = 2, .seed = 4}, {0, 3, 1, 3, 3});
  ASSERT_EQ(count.size(), 2u);  // of three equals, the two with the lowest ids
  expect_frequency(count.at(1), 0.5);
  expect_frequency(count.at(3), 0.5);
}

TEST(Sampler, TopKBeyondTheVocabularyKeepsAll) {
  EXPECT_EQ(draw_many({.temperature = 1, .top_k = 100, .seed = 5}, {0, 0, 0}).size(), 3u);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto count = draw_many({.temperature = 1, .top_p = 0.7f, .seed = 6}, logits);
  ASSERT_EQ(count.size(), 2u);
  expect_frequency(count.at(0), 0.5 / 0.8);
  expect_frequency(count.at(1), 0.3 / 0.8);
}

TEST(Sampler, ATinyTopPKeepsOne) {
  EXPECT_EQ(draw_many({.temperature = 1, .top_p = 1e-6f, .seed = 7}, {0, 0.1f, 0}).size(), 1u);
}

TEST(Sampler, MinPIsRelativeToTheLargest) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto count = draw_many({.temperature = 1, .min_p = 0.25f, .seed = 8}, logits);
  ASSERT_EQ(count.size(), 3u);  // 0.15 is above 0.25 * 0.5, 0.05 is below
  EXPECT_FALSE(count.contains(3));
}

TEST(Sampler, ThePenaltyDividesPositiveAndMultipliesNegativeLogits) {
  const std::vector<std::int32_t> history{0, 0, 2};  // twice in the history counts once
  Sampler sampler({.repetition_penalty = 2}, 3);
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 1.9f, -9}, history), 0);  // 4 / 2 = 2 > 1.9
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 2.1f, -9}, history), 1);  // once, not 4 / 4
  EXPECT_EQ(sampler.sample(std::vector<float>{-9, -3, -2}, history), 1);   // -2 * 2 = -4 < -3
}

TEST(Sampler, MinusInfinityIsNeverDrawn) {
  const auto count = draw_many({.temperature = 1, .seed = 9}, {-kInf, 0, -kInf, 0});
  EXPECT_EQ(count.size(), 2u);
  EXPECT_TRUE(count.contains(1) && count.contains(3));
}

TEST(Sampler, TheSameSeedGivesTheSameIds) {
  const std::vector<float> logits(1000, 0.5f);
  Sampler a({.temperature = 1, .seed = 42}, 1000), b({.temperature = 1, .seed = 42}, 1000);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.sample(logits, {}), b.sample(logits, {}));
}

// mt19937_64's 10,000th output is fixed by the C++ standard, [rand.predef]: with equal weights the id is its top bits.
TEST(Sampler, TheMappingFromTheGeneratorIsFixed) {
  const std::vector<float> logits(4096, 1.0f);
  Sampler sampler({.temperature = 1, .seed = 5489}, 4096);
  std::int32_t id = -1;
  for (int i = 0; i < 10'000; ++i) id = sampler.sample(logits, {});
  EXPECT_EQ(id, static_cast<std::int32_t>(9981545732273789042ull >> 52));
}

TEST(Sampler, OtherSeedsGiveOtherIds) {
  const std::vector<float> logits(1 << 16, 0.0f);
  Sampler a({.temperature = 1, .seed = 1}, 1 << 16), b({.temperature = 1, .seed = 2}, 1 << 16);
  int equal = 0;
  for (int i = 0; i < 100; ++i) equal += a.sample(logits, {}) == b.sample(logits, {});
  EXPECT_LT(equal, 5);  // expected 100 / 65536
}

TEST(Sampler, InvalidOptionsAreRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<SamplingOptions, std::string>> table = {
      {{.temperature = -1}, "temperature"},
      {{.temperature = nan}, "temperature"},
      {{.temperature = kInf}, "temperature"},
      {{.top_k = -1}, "top_k"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.5f}, "top_p"},
      {{.top_p = nan}, "top_p"},
      {{.min_p = -0.1f}, "min_p"},
      {{.min_p = 1.1f}, "min_p"},
      {{.min_p = nan}, "min_p"},
      {{.repetition_penalty = 0}, "repetition_penalty"},
      {{.repetition_penalty = nan}, "repetition_penalty"},
      {{.repetition_penalty = kInf}, "repetition_penalty"},
  };
  for (const auto& [options, name] : table) {
    std::string text;
    EXPECT_EQ(code_of(options, text), ErrorCode::usage) << name;
    EXPECT_NE(text.find(name), std::string::npos) << text;
  }
}

TEST(Sampler, NanLogitsAreTheCheckpointsFaultAndCounted) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler({.temperature = temperature}, 4);
    try {
      sampler.sample(std::vector<float>{0, nan, 1, nan}, {});
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("2 of 4"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("id 1"), std::string::npos) << error.what();
    }
  }
}

TEST(Sampler, ARowWithoutAFiniteLogitIsRefused) {
  Sampler sampler({}, 2);
  EXPECT_THROW(sampler.sample(std::vector<float>{-kInf, -kInf}, {}), Error);
  EXPECT_THROW(sampler.sample(std::vector<float>{0, kInf}, {}), Error);
}

TEST(Sampler, ARowOfAnotherLengthIsRefused) {
  Sampler sampler({}, 2);
  EXPECT_THROW(sampler.sample(std::vector<float>{0, 0, 0}, {}), Error);
}

TEST(Sampler, HistoryOutsideTheVocabularyIsRefused) {
  Sampler sampler({.repetition_penalty = 1.1f}, 2);
  for (const std::int32_t id : {-1, 2})
    EXPECT_THROW(sampler.sample(std::vector<float>{0, 0}, std::vector<std::int32_t>{id}), Error);
}

}  // namespace
}  // namespace fourfold
