// Compares a model with the values of a reference.json: logits, negative log-likelihoods, greedy continuations.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "fourfold/model.h"
#include "model/log_likelihood.h"

namespace fourfold {

namespace {

using Json = nlohmann::json;

// A reference of a few prompts and a full row of logits each is some megabytes.
constexpr std::uint64_t kLargestReferenceBytes = 1ull << 30;

/// One prompt of the file, checked.
struct Prompt {
  std::vector<std::int32_t> ids, greedy;
  std::vector<double> nll;          // empty, or ids.size() - 1
  std::vector<double> last_logits;  // empty, or [vocabulary]
  std::vector<std::vector<std::int32_t>> top_ids;
  std::vector<std::vector<double>> top_logits;  // as top_ids; empty or one list a position
};

/// Takes typed values out of one entry of the list; errors name file, entry and key.
class EntryReader {
 public:
  EntryReader(const Json& entry, std::string where, std::int64_t vocabulary)
      : entry_(entry), where_(std::move(where)), vocabulary_(vocabulary) {
    check(entry.is_object(), ErrorCode::bad_input, "{} is not a JSON object", where_);
  }

  Prompt read() const {
    Prompt prompt;
    prompt.ids = ids(value("prompt_ids"), "prompt_ids");
    check(!prompt.ids.empty(), ErrorCode::bad_input, "{}: prompt_ids is absent or empty", where_);
    prompt.greedy = ids(value("greedy_ids"), "greedy_ids");
    prompt.nll = numbers(value("nll"), "nll");
    prompt.last_logits = numbers(value("last_logits"), "last_logits");
    for (const Json& row : list(value("top_ids"), "top_ids")) prompt.top_ids.push_back(ids(row, "top_ids"));
    for (const Json& row : list(value("top_logits"), "top_logits"))
      prompt.top_logits.push_back(numbers(row, "top_logits"));
    expect(prompt.nll.empty() || prompt.nll.size() == prompt.ids.size() - 1, "nll", prompt.nll.size(),
           prompt.ids.size() - 1);
    expect(prompt.last_logits.empty() || static_cast<std::int64_t>(prompt.last_logits.size()) == vocabulary_,
           "last_logits", prompt.last_logits.size(), static_cast<std::size_t>(vocabulary_));
    expect(prompt.top_ids.empty() || prompt.top_ids.size() == prompt.ids.size(), "top_ids", prompt.top_ids.size(),
           prompt.ids.size());
    expect(prompt.top_logits.size() == prompt.top_ids.size(), "top_logits", prompt.top_logits.size(),
           prompt.top_ids.size());
    for (std::size_t i = 0; i < prompt.top_ids.size(); ++i)
      expect(prompt.top_logits[i].size() == prompt.top_ids[i].size(), "top_logits of a position",
             prompt.top_logits[i].size(), prompt.top_ids[i].size());
    return prompt;
  }

 private:
  const Json& value(const char* key) const {
    static const Json kNull;
    const auto found = entry_.find(key);
    return found == entry_.end() ? kNull : *found;
  }
  const Json& list(const Json& json, const char* key) const {
    static const Json kEmpty = Json::array();
    if (json.is_null()) return kEmpty;
    check(json.is_array(), ErrorCode::bad_input, "{}: {} is not a list", where_, key);
    return json;
  }
  std::vector<std::int32_t> ids(const Json& json, const char* key) const {
    std::vector<std::int32_t> out;
    for (const Json& id : list(json, key)) {
      check(id.is_number_integer() && id >= 0 && id < vocabulary_, ErrorCode::bad_input,
            "{}: {} has an entry that is no id of the vocabulary 0 .. {}", where_, key, vocabulary_ - 1);
      out.push_back(id.get<std::int32_t>());
    }
    return out;
  }
  std::vector<double> numbers(const Json& json, const char* key) const {
    std::vector<double> out;
    for (const Json& number : list(json, key)) {
      check(number.is_number(), ErrorCode::bad_input, "{}: {} has an entry that is no number", where_, key);
      out.push_back(number.get<double>());
    }
    return out;
  }
  void expect(bool ok, const char* key, std::size_t size, std::size_t expected) const {
    check(ok, ErrorCode::bad_input, "{}: {} has {} entries, {} are expected", where_, key, size, expected);
  }

  const Json& entry_;
  std::string where_;
  std::int64_t vocabulary_;
};

std::vector<Prompt> read_reference(const std::string& file, std::int64_t vocabulary) {
  const Json json = Json::parse(read_text_file(file, kLargestReferenceBytes), nullptr, false);
  check(!json.is_discarded(), ErrorCode::bad_input, "{}: not valid JSON", file);
  check(json.is_array() && !json.empty(), ErrorCode::bad_input,
        "{}: a list of prompts with at least one entry is expected", file);
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < json.size(); ++i)
    prompts.push_back(EntryReader(json[i], fmt::format("{}: entry {}", file, i), vocabulary).read());
  return prompts;
}

/// |got - expected|; infinite when either is not a number.
double distance(double got, double expected) {
  const double difference = std::abs(got - expected);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

void compare_prompt(Model& model, const Prompt& prompt, VerifyModelResult& result) {
  model.reset();
  const std::span<const float> logits = model.forward(prompt.ids, true);
  const auto width = static_cast<std::size_t>(model.vocabulary());
  const auto logit = [&](double got, double expected) {
    result.max_logit_error = std::max(result.max_logit_error, distance(got, expected));
    ++result.logits_compared;
  };
  for (std::size_t i = 0; i < prompt.top_ids.size(); ++i)
    for (std::size_t j = 0; j < prompt.top_ids[i].size(); ++j)
      logit(logits[i * width + static_cast<std::size_t>(prompt.top_ids[i][j])], prompt.top_logits[i][j]);
  const std::span<const float> last = logits.last(width);
  for (std::size_t j = 0; j < prompt.last_logits.size(); ++j) logit(last[j], prompt.last_logits[j]);
  for (std::size_t i = 0; i < prompt.nll.size(); ++i)
    result.max_nll_error =
        std::max(result.max_nll_error,
                 distance(negative_log_likelihood(logits.subspan(i * width, width), prompt.ids[i + 1]), prompt.nll[i]));
}

/// Greedy ids up to and including the first stop id of the reference; after a difference nothing can be compared.
void compare_greedy(Model& model, const Prompt& prompt, double tolerance, VerifyModelResult& result) {
  std::size_t length = 0;
  while (length < prompt.greedy.size()) {
    const std::int32_t id = prompt.greedy[length++];
    if (std::ranges::find(model.stop_ids(), id) != model.stop_ids().end()) break;
  }
  result.greedy_total += static_cast<std::int64_t>(length);
  if (length == 0) return;
  model.reset();
  std::span<const float> logits = model.forward(prompt.ids, false);
  for (std::size_t i = 0; i < length; ++i) {
    const auto best = std::ranges::max_element(logits);  // the first among equals
    const double behind = static_cast<double>(*best) - logits[static_cast<std::size_t>(prompt.greedy[i])];
    const bool first = best - logits.begin() == prompt.greedy[i];
    if (!std::isfinite(*best) || !(first || (tolerance > 0 && behind <= tolerance))) return;
    ++result.greedy_matched;
    if (i + 1 < length) logits = model.forward(std::span(prompt.greedy).subspan(i, 1), false);
  }
}

}  // namespace

VerifyModelResult verify_model(Model& model, const std::string& reference_file, double logit_tolerance,
                               double greedy_tolerance) {
  for (const double tolerance : {logit_tolerance, greedy_tolerance})
    check(std::isfinite(tolerance) && tolerance >= 0, ErrorCode::usage,
          "logit tolerance {}: a finite number of at least 0 is expected", tolerance);
  const std::vector<Prompt> prompts = read_reference(reference_file, model.vocabulary());
  VerifyModelResult result;
  bool any_nll = false;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto needed = static_cast<std::int64_t>(prompts[i].ids.size() + prompts[i].greedy.size());
    check(needed <= model.context() + 1, ErrorCode::bad_input, "{}: entry {} needs {} positions, the context has {}",
          reference_file, i, needed - 1, model.context());
    any_nll = any_nll || !prompts[i].nll.empty();
    compare_prompt(model, prompts[i], result);
    compare_greedy(model, prompts[i], greedy_tolerance, result);
  }
  check(result.logits_compared > 0 || result.greedy_total > 0 || any_nll, ErrorCode::bad_input,
        "{}: no entry has a value to compare (top_logits, last_logits, nll or greedy_ids)", reference_file);
  // a negative log-likelihood is a difference of two functions of the logits, each off by at most the tolerance
  result.ok = result.max_logit_error <= logit_tolerance && result.max_nll_error <= 2 * logit_tolerance &&
              result.greedy_matched == result.greedy_total;
  return result;
}

}  // namespace fourfold
