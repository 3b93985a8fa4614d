// Prompt in, text out: prefill, then one token after the other until a stop id, the limit or the context ends it.
#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/file.h"
#include "fourfold/model.h"
#include "model/sampler.h"
#include "model/utf8_stream.h"

namespace fourfold {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double rate(std::size_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

void check_prompt(const Model& model, std::span<const std::int32_t> prompt, std::int64_t max_new_tokens) {
  check(!prompt.empty(), ErrorCode::usage, "the prompt is empty: give at least one token");
  check(max_new_tokens > 0, ErrorCode::usage, "{} new tokens: at least 1 must be asked for", max_new_tokens);
  check(static_cast<std::int64_t>(prompt.size()) <= model.context(), ErrorCode::usage,
        "the prompt has {} tokens, the context {}: shorten the prompt", prompt.size(), model.context());
}

}  // namespace

GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, std::int64_t max_new_tokens,
                        const SamplingOptions& sampling, const std::function<void(std::string_view)>& on_text) {
  check_prompt(model, prompt, max_new_tokens);
  Sampler sampler(sampling, model.vocabulary());
  GenerateResult result;
  result.load_seconds = model.load_seconds();
  result.prompt_ids.assign(prompt.begin(), prompt.end());
  std::vector<std::int32_t> history = result.prompt_ids;
  Utf8Stream text([&](std::string_view piece) {
    result.text += piece;
    if (on_text) on_text(piece);
  });

  model.reset();
  const auto start = std::chrono::steady_clock::now();
  std::span<const float> logits = model.forward(prompt, false);
  result.prefill_tokens_per_second = rate(prompt.size(), seconds_since(start));

  const auto decode_start = std::chrono::steady_clock::now();
  std::size_t steps = 0;
  for (;;) {
    const std::int32_t id = sampler.sample(logits, history);
    result.ids.push_back(id);
    history.push_back(id);
    if (std::ranges::find(model.stop_ids(), id) != model.stop_ids().end()) break;
    if (model.tokenizer() != nullptr) text.append(model.tokenizer()->decode({&id, 1}));
    if (static_cast<std::int64_t>(result.ids.size()) == max_new_tokens) break;
    if (static_cast<std::int64_t>(history.size()) > model.context()) break;  // no position is left for this id
    logits = model.forward({&id, 1}, false);
    ++steps;
  }
  result.decode_tokens_per_second = rate(steps, seconds_since(decode_start));
  text.finish();
  result.peak_memory_bytes = peak_memory_bytes();
  return result;
}

}  // namespace fourfold
