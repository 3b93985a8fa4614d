// Choosing the next token from a row of logits: greedy, or temperature with top-k, top-p (Holtzman et al. 2020),
// min-p (Nguyen et al. 2024) and a repetition penalty (CTRL, Keskar et al. 2019).
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "fourfold/model.h"

namespace fourfold {

/// Draws token ids. The same options, logits and history give the same ids on every platform whose `exp` agrees:
/// the generator is mt19937_64, and the mapping to [0, 1) is its top 53 bits. Not thread-safe (it has a state).
class Sampler {
 public:
  /// `vocabulary` is the length of a logit row, > 0. Throws usage naming the option, its value and its range:
  /// temperature finite and >= 0, top_k >= 0, top_p in (0, 1], min_p in [0, 1], repetition_penalty finite and > 0.
  Sampler(const SamplingOptions& options, std::int64_t vocabulary);

  /// The next id. `logits` is f32 [vocabulary], of which -inf means "never"; `history` holds the ids so far (prompt
  /// included), which the repetition penalty looks at. Order: penalty, temperature, top-k, top-p, min-p. Equal
  /// logits rank by id, lowest first. Throws usage for a row of another length or a history id outside the
  /// vocabulary, internal for NaN, +inf or a row without a finite logit.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history);

 private:
  struct Candidate {
    double logit;
    std::int32_t id;
  };
  void check_row(std::span<const float> logits, std::span<const std::int32_t> history) const;
  void penalise(std::span<const std::int32_t> history);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  std::int32_t draw();

  SamplingOptions options_;
  std::int64_t vocabulary_;
  std::mt19937_64 generator_;
  std::vector<Candidate> candidates_;  // kept between calls to save the allocation
  std::vector<double> weights_;        // exp(logit - max) of candidates_
  std::vector<bool> penalised_;        // [vocabulary], all false between calls
};

}  // namespace fourfold
