// Perplexity of a text: mean negative log-likelihood over windows that do not overlap, each starting at position 0.
#include <chrono>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "fourfold/model.h"
#include "model/log_likelihood.h"

namespace fourfold {

EvalResult evaluate(Model& model, std::string_view text, std::int64_t window,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(model.tokenizer() != nullptr, ErrorCode::bad_input,
        "the model's folder has no tokenizer.json, a text needs one");
  check(window >= 1 && window <= model.context(), ErrorCode::usage, "window {} is outside 1 .. {}, the model's context",
        window, model.context());
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::int32_t> ids = model.tokenizer()->encode(text);
  const auto count = static_cast<std::int64_t>(ids.size());
  check(count > window, ErrorCode::usage,
        "the text has {} ids, a window of {} needs at least {}: give more text or a "
        "smaller window",
        count, window, window + 1);
  const std::int64_t windows = (count - 1) / window, width = model.vocabulary();
  double total = 0;
  for (std::int64_t j = 0; j < windows; ++j) {
    const auto at = static_cast<std::size_t>(j * window), size = static_cast<std::size_t>(window);
    model.reset();
    const std::span<const float> logits = model.forward(std::span(ids).subspan(at, size), true);
    total += sum_negative_log_likelihood(logits, std::span(ids).subspan(at + 1, size), width);
    if (progress) progress(j + 1, windows);
  }
  EvalResult result;
  result.window = window;
  result.tokens = windows * window;
  result.mean_nll = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.mean_nll);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  check(std::isfinite(result.mean_nll), ErrorCode::internal,
        "the mean negative log-likelihood is {}: logits are not finite", result.mean_nll);
  return result;
}

}  // namespace fourfold
