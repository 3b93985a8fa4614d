// The matrix by counting, the pairwise set by a greedy search without randomness.
#include "gpu/residue_cases.h"

#include <algorithm>
#include <utility>

namespace fourfold::gpu_test {
namespace {

enum Factor : std::size_t {
  kIntermediate,
  kTokens,
  kFormat,
  kActivation,
  kOptions,
  kHidden,
  kSlots,
  kExperts,
  kDType,
  kIds,
};

template <class List>
std::vector<std::string> texts(const List& list, const char* before = "") {
  std::vector<std::string> all;
  for (const auto& level : list) {
    if constexpr (std::is_convertible_v<decltype(level), std::string>)
      all.push_back(before + std::string(level));
    else
      all.push_back(before + std::to_string(level));
  }
  return all;
}

ResidueCase make_case(const std::vector<int>& levels) {
  const auto text = [&](Factor factor) {
    return residue_factors()[factor].levels[static_cast<std::size_t>(levels[factor])];
  };
  ResidueCase result;
  result.problem = text(kTokens) + " " + text(kSlots) + " " + text(kExperts) + " " + text(kHidden) + " " +
                   text(kIntermediate) + " " + text(kFormat) + " " + text(kDType) + " " + text(kActivation) +
                   text(kOptions);
  const std::string ids = text(kIds);
  result.options.ids_are_64_bit = ids.find("64") != std::string::npos;
  result.options.plant_dead_ids = ids.find("dead") != std::string::npos;
  result.levels = levels;
  return result;
}

/// A number that looks random, the same everywhere: the finaliser of splitmix64 (Steele, Lea, Flood, 2014).
std::uint64_t scattered(std::uint64_t index, std::uint64_t stream) {
  std::uint64_t z = index * 0x9e3779b97f4a7c15ull + stream * 0xd1342543de82ef95ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Which pairs of levels have met.
class Pairs {
 public:
  Pairs() {
    const auto& factors = residue_factors();
    for (std::size_t a = 0; a < factors.size(); ++a)
      for (std::size_t b = a + 1; b < factors.size(); ++b) {
        met_[a][b].assign(factors[a].levels.size() * factors[b].levels.size(), false);
        open_ += met_[a][b].size();
      }
  }
  bool met(std::size_t a, int level_a, std::size_t b, int level_b) const {
    if (a > b) return met(b, level_b, a, level_a);
    return met_[a][b][index(level_a, b, level_b)];
  }
  void add(const std::vector<int>& levels) {
    for (std::size_t a = 0; a < levels.size(); ++a)
      for (std::size_t b = a + 1; b < levels.size(); ++b) {
        auto met = met_[a][b].begin() + static_cast<std::ptrdiff_t>(index(levels[a], b, levels[b]));
        open_ -= !*met;
        *met = true;
      }
  }
  bool all_met() const { return open_ == 0; }

 private:
  static std::size_t index(int level_a, std::size_t b, int level_b) {
    return static_cast<std::size_t>(level_a) * residue_factors()[b].levels.size() + static_cast<std::size_t>(level_b);
  }
  static constexpr std::size_t kMost = 16;
  std::vector<bool> met_[kMost][kMost];
  std::size_t open_ = 0;
};

/// The level of `factor` that meets most of the levels chosen so far for the first time; `turn` decides among equals.
int best_level(const Pairs& pairs, const std::vector<int>& levels, std::size_t factor, std::size_t turn) {
  const auto count = residue_factors()[factor].levels.size();
  int best = -1, best_gain = -1;
  for (std::size_t i = 0; i < count; ++i) {
    const int level = static_cast<int>((turn + i) % count);
    int gain = 0;
    for (std::size_t other = 0; other < levels.size(); ++other)
      gain += other != factor && levels[other] >= 0 && !pairs.met(factor, level, other, levels[other]);
    if (gain > best_gain) {
      best = level;
      best_gain = gain;
    }
  }
  return best;
}

/// The first two levels that have not met, all others open.
std::vector<int> first_open_pair(const Pairs& pairs) {
  const auto& factors = residue_factors();
  for (std::size_t a = 0; a < factors.size(); ++a)
    for (std::size_t b = a + 1; b < factors.size(); ++b)
      for (std::size_t i = 0; i < factors[a].levels.size(); ++i)
        for (std::size_t j = 0; j < factors[b].levels.size(); ++j)
          if (!pairs.met(a, static_cast<int>(i), b, static_cast<int>(j))) {
            std::vector<int> levels(factors.size(), -1);
            levels[a] = static_cast<int>(i);
            levels[b] = static_cast<int>(j);
            return levels;
          }
  return {};
}

/// Multiplications of a case, about.
std::int64_t cost(const ResidueCase& one) {
  return std::int64_t{kResidueTokens[static_cast<std::size_t>(one.levels[kTokens])]} *
         kResidueIntermediates[static_cast<std::size_t>(one.levels[kIntermediate])];
}

}  // namespace

const std::vector<ResidueFactor>& residue_factors() {
  static const std::vector<ResidueFactor> factors = {
      {"intermediate", texts(kResidueIntermediates, "i")},
      {"tokens", texts(kResidueTokens, "t")},
      {"format", texts(kResidueFormats)},
      {"activation", texts(kResidueActivations)},
      {"options", {"", " bias", " on_input", " eg11", " eg11 bias on_input", " bias on_input"}},
      {"hidden", {"h64", "h72", "h136", "h200", "h256"}},
      {"top_k", {"k1", "k2", "k3"}},
      {"experts", {"e1", "e5", "e7"}},  // e1: a token may name one expert in several slots
      {"dtype", {"bf16", "f16"}},
      {"ids", {"32 bits", "64 bits, dead ones", "32 bits, dead ones"}},
  };
  return factors;
}

std::vector<ResidueCase> residue_matrix() {
  const auto& factors = residue_factors();
  std::vector<ResidueCase> cases;
  for (std::size_t i = 0; i < kResidueIntermediates.size(); ++i)
    for (std::size_t t = 0; t < kResidueTokens.size(); ++t)
      for (std::size_t f = 0; f < kResidueFormats.size(); ++f) {
        std::vector<int> levels(factors.size());
        levels[kIntermediate] = static_cast<int>(i);
        levels[kTokens] = static_cast<int>(t);
        levels[kFormat] = static_cast<int>(f);
        levels[kActivation] = static_cast<int>((f + i + 3 * t) % kResidueActivations.size());
        for (std::size_t other = kOptions; other < factors.size(); ++other)
          levels[other] = static_cast<int>(scattered(cases.size(), other) % factors[other].levels.size());
        cases.push_back(make_case(levels));
      }
  return cases;
}

std::vector<ResidueCase> pairwise_cases() {
  Pairs pairs;
  std::vector<ResidueCase> cases;
  while (!pairs.all_met()) {
    std::vector<int> levels = first_open_pair(pairs);
    for (std::size_t factor = 0; factor < levels.size(); ++factor)
      if (levels[factor] < 0) levels[factor] = best_level(pairs, levels, factor, cases.size());
    pairs.add(levels);
    cases.push_back(make_case(levels));
  }
  std::stable_sort(cases.begin(), cases.end(),
                   [](const ResidueCase& a, const ResidueCase& b) { return cost(a) < cost(b); });
  return cases;
}

}  // namespace fourfold::gpu_test
