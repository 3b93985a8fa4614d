// How a layer is split over ranks: columns of every expert (tensor parallel) and whole experts (expert parallel).
#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "formats/format.h"
#include "fourfold/plan.h"
#include "plan/problem.h"

namespace fourfold {
namespace {

struct Share {
  std::int64_t first = 0, count = 0;
};

/// Part `index` of `parts` of `total` in whole units; the first parts get what does not divide, the last one the tail.
Share share_of(std::int64_t total, std::int64_t unit, int parts, int index) {
  const std::int64_t units = ceil_div(total, unit), each = units / parts, more = units % parts;
  const std::int64_t first = (each * index + std::min<std::int64_t>(index, more)) * unit;
  const std::int64_t count = (each + (index < more ? 1 : 0)) * unit;
  return {std::min(first, total), std::min(first + count, total) - std::min(first, total)};
}

/// Columns that cannot be parted: a scale group along the second projection, at least the smallest width.
std::int64_t column_unit(const Caps& caps) {
  if (caps.format.format == WeightFormat::exl3) return 128;
  const std::int64_t group = group_length(caps.format, caps.intermediate);
  return std::lcm(std::max<std::int64_t>(1, group), kWidthMultiple);
}

}  // namespace

std::vector<RankShare> split_over_ranks(const Caps& caps, int tp, int ep) {
  constexpr int kMaxRanks = 65536;
  check(tp >= 1 && ep >= 1 && tp <= kMaxRanks / ep, ErrorCode::usage,
        "tp = {} and ep = {}: both are at least 1 and their product at most {}", tp, ep, kMaxRanks);
  if (tp == 1 && ep == 1) return {{0, 0, 0, 0, 0, caps}};  // whatever planning says of it
  std::string reason = sizes_refusal(caps);
  if (reason.empty() && caps.format.format != WeightFormat::exl3) reason = format_refusal(caps.format);
  check(reason.empty(), ErrorCode::unsupported, "{}", reason);
  check(ep == 1 || caps.global_experts == 0, ErrorCode::usage,
        "ep = {} splits the experts of a whole layer, but the problem has eg{} and is a rank's already; leave one out",
        ep, caps.global_experts);
  check(caps.experts >= ep, ErrorCode::unsupported,
        "ep = {} is more than the {} experts: a rank would have none; use {}", ep, caps.experts, caps.experts);
  const std::int64_t unit = column_unit(caps);
  const std::int64_t units = ceil_div(caps.intermediate, unit);
  check(units >= tp, ErrorCode::unsupported,
        "tp = {}: the intermediate of {} has {} groups of {}, and a rank would have none; use at most {}", tp,
        caps.intermediate, units, unit, units);
  std::vector<RankShare> ranks;
  for (int ep_rank = 0; ep_rank < ep; ++ep_rank)
    for (int tp_rank = 0; tp_rank < tp; ++tp_rank) {
      const Share experts = share_of(caps.experts, 1, ep, ep_rank);
      const Share columns = share_of(caps.intermediate, unit, tp, tp_rank);
      RankShare rank{ep_rank * tp + tp_rank, tp_rank, ep_rank, experts.first, columns.first, caps};
      rank.caps.experts = experts.count;
      rank.caps.intermediate = columns.count;
      if (ep > 1) rank.caps.global_experts = caps.experts;
      ranks.push_back(std::move(rank));
    }
  return ranks;
}

}  // namespace fourfold
