// Questions about a plan's capacity: the largest that fits, and what a larger one would reach.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "core/check.h"
#include "fourfold/plan.h"
#include "plan/problem.h"

namespace fourfold {
namespace {

/// Whether a plan for `tokens` exists and needs at most `bytes`.
bool fits(Caps caps, const Device& device, std::int64_t tokens, std::uint64_t bytes) {
  caps.max_tokens = tokens;
  return can_implement(caps, device) && required_workspace_bytes(caps, device) <= bytes;
}

bool word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// What a word of a formula stands for in this plan; empty when it stays as it is.
std::string number_of(const Plan& plan, std::string_view word) {
  const Caps& caps = plan.caps();
  if (word == "routes") return std::to_string(caps.max_tokens * caps.top_k);
  if (word == "tokens") return std::to_string(caps.max_tokens);
  if (word == "experts") return std::to_string(caps.experts);
  if (word == "hidden") return std::to_string(caps.hidden);
  if (word == "intermediate") return std::to_string(caps.intermediate);
  if (word == "threads") return std::to_string(plan.device().threads);
  return {};
}

}  // namespace

std::int64_t largest_max_tokens(const Caps& caps, const Device& device, std::uint64_t bytes, std::int64_t limit) {
  limit = std::min(limit, kMaxTokens);
  Caps one = caps;
  one.max_tokens = 1;
  const Support support = can_implement(one, device);
  check(support.ok, ErrorCode::unsupported, "{}", support.reason);
  if (limit < 0 || !fits(caps, device, 0, bytes)) return -1;
  // The workspace grows with max_tokens and refusals do too, so the answer is a boundary.
  std::int64_t low = 0, high = limit;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (fits(caps, device, middle, bytes))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

std::vector<UnreachableKernel> unreachable_kernels(const Plan& plan) {
  // Far above the counts at which tiles stop growing.
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;
  const std::int64_t capacity = plan.caps().max_tokens;
  Caps caps = plan.caps();
  if (capacity >= kLarge) return {};
  caps.max_tokens = kLarge;
  while (!can_implement(caps, plan.device()) && caps.max_tokens > capacity) caps.max_tokens /= 2;
  if (caps.max_tokens <= capacity) return {};
  // The bands of a plan can depend on its capacity, so each place where they change is planned for itself.
  std::set<std::int64_t> capacities{capacity + 1};
  for (const Band& band : fourfold::plan(caps, plan.device()).bands())
    for (const std::int64_t edge : {band.min_tokens, band.max_tokens})
      if (edge > capacity) capacities.insert(edge);
  std::vector<std::string> known = plan.kernels();
  std::vector<UnreachableKernel> found;
  for (const std::int64_t tokens : capacities) {
    caps.max_tokens = tokens;
    if (!can_implement(caps, plan.device())) continue;
    const Plan larger = fourfold::plan(caps, plan.device());
    for (const std::string& kernel : larger.kernels()) {
      if (std::find(known.begin(), known.end(), kernel) != known.end()) continue;
      known.push_back(kernel);
      found.push_back({kernel, tokens, larger.workspace_bytes()});
    }
  }
  return found;
}

std::string formula_numbers(const Plan& plan, const Segment& segment) {
  const std::string& formula = segment.formula;
  std::string text;
  for (std::size_t begin = 0; begin < formula.size();) {
    if (!word_character(formula[begin])) {
      text += formula[begin++];
      continue;
    }
    std::size_t end = begin;
    while (end < formula.size() && word_character(formula[end])) ++end;
    const std::string_view word(formula.data() + begin, end - begin);
    const std::string number = number_of(plan, word);
    text += number.empty() ? std::string(word) : number;
    begin = end;
  }
  // "(6144 padded to 16)" is a number, too.
  constexpr std::string_view kPadded = " padded to 16)";
  for (std::size_t at = text.find(kPadded); at != std::string::npos; at = text.find(kPadded)) {
    const std::size_t open = text.rfind('(', at);
    const std::int64_t padded = round_up(std::stoll(text.substr(open + 1, at - open - 1)), 16);
    text.replace(open, at + kPadded.size() - open, std::to_string(padded));
  }
  return text;
}

}  // namespace fourfold
