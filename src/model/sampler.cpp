// Sampling steps in the order in which they apply; each narrows `candidates_` and never empties it.
#include "model/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace fourfold {
namespace {

template <class A>
bool ranks_before(const A& a, const A& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, std::int64_t vocabulary)
    : options_(options), vocabulary_(vocabulary), generator_(options.seed) {
  check(vocabulary > 0 && vocabulary < (std::int64_t{1} << 31), ErrorCode::usage,
        "sampler: vocabulary {} is not in 1 .. 2^31 - 1", vocabulary);
  check(std::isfinite(options.temperature) && options.temperature >= 0, ErrorCode::usage,
        "temperature {} is not a finite number >= 0; 0 is greedy", options.temperature);
  check(options.top_k >= 0, ErrorCode::usage, "top_k {} is below 0; 0 turns it off", options.top_k);
  check(options.top_p > 0 && options.top_p <= 1, ErrorCode::usage, "top_p {} is not in (0, 1]; 1 turns it off",
        options.top_p);
  check(options.min_p >= 0 && options.min_p <= 1, ErrorCode::usage, "min_p {} is not in [0, 1]; 0 turns it off",
        options.min_p);
  check(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0, ErrorCode::usage,
        "repetition_penalty {} is not a finite number > 0; 1 turns it off", options.repetition_penalty);
  penalised_.assign(static_cast<std::size_t>(vocabulary), false);
}

void Sampler::check_row(std::span<const float> logits, std::span<const std::int32_t> history) const {
  check(static_cast<std::int64_t>(logits.size()) == vocabulary_, ErrorCode::usage,
        "sampler: {} logits for a vocabulary of {}", logits.size(), vocabulary_);
  std::int64_t nan_count = 0, first = -1, finite = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool bad = std::isnan(logits[i]) || logits[i] == INFINITY;
    if (bad && nan_count++ == 0) first = static_cast<std::int64_t>(i);
    finite += std::isfinite(logits[i]);
  }
  check(nan_count == 0, ErrorCode::bad_input,
        "sampler: {} of {} logits are NaN or +inf, the first is that of id {} (after {} tokens of history); the "
        "checkpoint holds values that are not finite or overflow: try f32 activations, or fetch it again",
        nan_count, vocabulary_, first, history.size());
  check(finite > 0, ErrorCode::bad_input,
        "sampler: all {} logits are -inf (after {} tokens of history); the checkpoint holds values that overflow",
        vocabulary_, history.size());
}

void Sampler::penalise(std::span<const std::int32_t> history) {
  for (std::int32_t id : history)
    check(id >= 0 && id < vocabulary_, ErrorCode::usage, "sampler: history id {} is outside [0, {})", id, vocabulary_);
  if (options_.repetition_penalty == 1.0f) return;
  const double penalty = options_.repetition_penalty;
  for (std::int32_t id : history) {
    if (penalised_[id]) continue;
    penalised_[id] = true;
    double& logit = candidates_[id].logit;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  for (std::int32_t id : history) penalised_[id] = false;
}

void Sampler::keep_top_k() {
  const auto count = static_cast<std::int64_t>(candidates_.size());
  if (options_.top_k == 0 || options_.top_k >= count) return;
  const auto end = candidates_.begin() + options_.top_k;
  std::nth_element(candidates_.begin(), end, candidates_.end(), ranks_before<Candidate>);
  candidates_.erase(end, candidates_.end());
}

void Sampler::keep_top_p() {
  if (options_.top_p == 1.0f) return;
  std::sort(candidates_.begin(), candidates_.end(), ranks_before<Candidate>);
  const double top = candidates_.front().logit;
  double total = 0;
  for (const Candidate& c : candidates_) total += std::exp(c.logit - top);
  // The smallest set whose mass reaches top_p; the candidate that crosses the line belongs to it.
  double mass = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && mass < static_cast<double>(options_.top_p) * total)
    mass += std::exp(candidates_[kept++].logit - top);
  candidates_.resize(std::max<std::size_t>(kept, 1));
}

void Sampler::keep_min_p() {
  if (options_.min_p == 0.0f) return;
  double top = -INFINITY;
  for (const Candidate& c : candidates_) top = std::max(top, c.logit);
  std::erase_if(candidates_,
                [&](const Candidate& c) { return std::exp(c.logit - top) < static_cast<double>(options_.min_p); });
}

std::int32_t Sampler::draw() {
  double top = -INFINITY, total = 0;
  for (const Candidate& c : candidates_) top = std::max(top, c.logit);
  weights_.clear();
  for (const Candidate& c : candidates_) total += weights_.emplace_back(std::exp(c.logit - top));
  const double uniform = static_cast<double>(generator_() >> 11) * 0x1p-53;  // [0, 1)
  const double target = uniform * total;
  double mass = 0;
  std::int32_t last = candidates_.front().id;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] == 0) continue;
    last = candidates_[i].id;
    mass += weights_[i];
    if (mass > target) break;
  }
  return last;
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
  check_row(logits, history);
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_[i] = {logits[i], static_cast<std::int32_t>(i)};
  penalise(history);
  if (options_.temperature == 0)
    return std::min_element(candidates_.begin(), candidates_.end(), ranks_before<Candidate>)->id;
  std::erase_if(candidates_, [](const Candidate& c) { return c.logit == -INFINITY; });
  for (Candidate& c : candidates_) c.logit /= static_cast<double>(options_.temperature);
  keep_top_k();
  keep_top_p();
  keep_min_p();
  return draw();
}

}  // namespace fourfold
