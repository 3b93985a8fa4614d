// The comparer of models: what it refuses, and that it sees faults.
#include <cmath>

#include "model/model_fixture.h"

namespace fourfold::test {
namespace {

/// A stand-in whose logits are given: position p of any prompt has logits[p % rows].
class FixedModel final : public Model {
 public:
  explicit FixedModel(std::vector<std::vector<float>> rows) : rows_(std::move(rows)) {}
  std::int64_t vocabulary() const noexcept override { return static_cast<std::int64_t>(rows_[0].size()); }
  std::int64_t context() const noexcept override { return 16; }
  const std::vector<std::int32_t>& stop_ids() const noexcept override { return stop_ids_; }
  const Tokenizer* tokenizer() const noexcept override { return nullptr; }
  std::string format_text() const override { return "none"; }
  std::uint64_t weight_bytes() const noexcept override { return 0; }
  void reset() override { position_ = 0; }
  std::span<const float> forward(std::span<const std::int32_t> ids, bool all_positions) override {
    out_.clear();
    for (std::size_t i = 0; i < ids.size(); ++i, ++position_)
      if (all_positions || i + 1 == ids.size())
        out_.insert(out_.end(), rows_[position_ % rows_.size()].begin(), rows_[position_ % rows_.size()].end());
    return out_;
  }
  double load_seconds() const noexcept override { return 0; }

 private:
  std::vector<std::vector<float>> rows_;
  std::vector<std::int32_t> stop_ids_{3};
  std::vector<float> out_;
  std::size_t position_ = 0;
};

FixedModel good() { return FixedModel({{0, 1, 2, 0}, {3, 1, 2, 0}, {0, 0, 0, 9}}); }

// prompt of two; the greedy ids after it are 0 (position 1), 3 (position 2, the stop id); what follows is not compared
const char* const kGood = R"([{"prompt_ids": [1, 2], "top_ids": [[2], [0]], "top_logits": [[2.0], [3.0]],
  "last_logits": [3, 1, 2, 0], "nll": [0.4938], "greedy_ids": [0, 3, 1, 1]}])";

VerifyModelResult verify(Model& model, const std::string& reference, double tolerance = 1e-3) {
  TemporaryFolder folder;
  return verify_model(model, folder.write("reference.json", reference), tolerance);
}

TEST(VerifyModel, ComparesEverythingThereIs) {
  FixedModel model = good();
  const VerifyModelResult result = verify(model, kGood);
  EXPECT_TRUE(result.ok);
  EXPECT_EQ(result.logits_compared, 6);
  EXPECT_EQ(result.max_logit_error, 0);
  EXPECT_LT(result.max_nll_error, 1e-3);
  EXPECT_EQ(result.greedy_total, 2);
  EXPECT_EQ(result.greedy_matched, 2);
}

TEST(VerifyModel, SeesAWrongLogitAtAnyPosition) {
  for (const auto& [row, column] : {std::pair{0, 2}, {1, 0}, {1, 3}}) {
    std::vector<std::vector<float>> rows{{0, 1, 2, 0}, {3, 1, 2, 0}, {0, 0, 0, 9}};
    rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] += 0.01f;
    FixedModel model(rows);
    const VerifyModelResult result = verify(model, kGood);
    EXPECT_FALSE(result.ok);
    EXPECT_NEAR(result.max_logit_error, 0.01, 1e-6);
  }
}

TEST(VerifyModel, SeesNan) {
  FixedModel model({{0, 1, NAN, 0}, {3, 1, 2, 0}, {0, 0, 0, 9}});
  const VerifyModelResult result = verify(model, kGood);
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(std::isinf(result.max_logit_error));
}

TEST(VerifyModel, SeesZerosAndAWrongGreedyId) {
  FixedModel zeros({{0, 0, 0, 0}});
  EXPECT_FALSE(verify(zeros, kGood).ok);
  FixedModel model({{0, 1, 2, 0}, {3, 1, 2, 0}, {0, 10, 0, 9}});
  const VerifyModelResult result = verify(model, kGood);
  EXPECT_EQ(result.greedy_matched, 1);
  EXPECT_EQ(result.greedy_total, 2);
  EXPECT_FALSE(result.ok);
}

TEST(VerifyModel, ANearTieMatchesWithinItsToleranceOnly) {
  TemporaryFolder folder;
  const std::string reference = folder.write("reference.json", R"([{"prompt_ids": [1], "greedy_ids": [2, 3]}])");
  FixedModel model({{0, 2.125f, 2, 0}, {0, 0, 0, 9}});
  EXPECT_EQ(verify_model(model, reference, 1e-3).greedy_matched, 0);
  EXPECT_EQ(verify_model(model, reference, 1e-3, 0.0625).greedy_matched, 0);
  EXPECT_EQ(verify_model(model, reference, 1e-3, 0.125).greedy_matched, 2);
}

TEST(VerifyModel, SeesAWrongLikelihood) {
  FixedModel model = good();
  const VerifyModelResult result = verify(model, R"([{"prompt_ids": [1, 2], "nll": [0.5938]}])");
  EXPECT_NEAR(result.max_nll_error, 0.1, 1e-3);
  EXPECT_FALSE(result.ok);
}

TEST(VerifyModel, BadReferencesAreBadInput) {
  FixedModel model = good();
  for (const char* text : {
           "",
           "{",
           "{}",
           "[]",
           "[1]",
           "[{}]",
           R"([{"prompt_ids": []}])",
           R"([{"prompt_ids": [1]}])",  // nothing to compare
           R"([{"prompt_ids": [1], "top_ids": [], "top_logits": [], "nll": [], "last_logits": null}])",
           R"([{"prompt_ids": [4], "greedy_ids": [1]}])",  // outside the vocabulary
           R"([{"prompt_ids": [-1], "greedy_ids": [1]}])",
           R"([{"prompt_ids": [1.5], "greedy_ids": [1]}])",
           R"([{"prompt_ids": [1], "greedy_ids": ["a"]}])",
           R"([{"prompt_ids": [1], "greedy_ids": 3}])",
           R"([{"prompt_ids": [1, 2], "nll": [1, 2]}])",
           R"([{"prompt_ids": [1], "last_logits": [1, 2]}])",
           R"([{"prompt_ids": [1, 2], "top_ids": [[1]], "top_logits": [[1]]}])",
           R"([{"prompt_ids": [1], "top_ids": [[1, 2]], "top_logits": [[1]]}])",
           R"([{"prompt_ids": [1], "top_ids": [[9]], "top_logits": [[1]]}])",
           R"([{"prompt_ids": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], "greedy_ids": [1]}])",  // past the context
       })
    EXPECT_EQ(error_of([&] { verify(model, text); }).first, 4) << text;
  EXPECT_EQ(error_of([&] { verify_model(model, "/nowhere/reference.json", 1); }).first, 4);
  EXPECT_EQ(error_of([&] { verify(model, kGood, NAN); }).first, 2);
}

}  // namespace
}  // namespace fourfold::test
