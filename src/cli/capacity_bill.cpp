// What a capacity costs: of our plan, and of the systems that it is compared with.
#include "capacity_bill.h"

#include <algorithm>
#include <limits>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

/// Ranks with different shares: what must be asked once.
std::vector<Caps> distinct_caps(const PlanRequest& request) {
  std::vector<Caps> distinct;
  for (const RankShare& rank : request.ranks)
    if (std::find(distinct.begin(), distinct.end(), rank.caps) == distinct.end()) distinct.push_back(rank.caps);
  return distinct;
}

/// A capacity can be beyond what can be planned at all.
std::optional<std::uint64_t> workspace_if_any(const PlanRequest& request, std::int64_t tokens) {
  try {
    return workspace_at(request, tokens);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

struct Range {
  std::int64_t low, high;
};

/// The largest value of the range that `holds`; of its lowest one that is not asked but taken for granted.
template <class Predicate>
std::int64_t largest_that(Range range, const Predicate& holds) {
  while (range.low < range.high) {
    const std::int64_t middle = range.low + (range.high - range.low + 1) / 2;
    if (holds(middle))
      range.low = middle;
    else
      range.high = middle - 1;
  }
  return range.low;
}

ReferenceBill bill_at(const PlanReport& report, const std::string& system, std::int64_t tokens) {
  Caps caps = report.caps();
  caps.max_tokens = tokens;
  return reference_bill(system, caps, report.request.device);
}

}  // namespace

std::vector<Biller> billers(const PlanReport& report) {
  std::vector<Biller> all;
  if (report.refused.empty())
    all.push_back({"fourfold", true, "",
                   [&report](std::int64_t tokens) { return workspace_if_any(report.request, tokens); },
                   [](std::int64_t) { return std::int64_t{0}; }});
  for (const ReferenceBill& bill : report.bills) {
    const std::string system = bill.system;
    all.push_back({system, false, bill_at(report, system, 1).refused,
                   [&report, system](std::int64_t tokens) -> std::optional<std::uint64_t> {
                     const ReferenceBill at = bill_at(report, system, tokens);
                     if (!at.refused.empty()) return std::nullopt;
                     return at.total_bytes;
                   },
                   [&report, system](std::int64_t tokens) {
                     const ReferenceBill at = bill_at(report, system, tokens);
                     return at.blocks.empty() ? std::numeric_limits<std::int64_t>::max() : at.blocks.back();
                   }});
  }
  return all;
}

std::int64_t largest_capacity(const Biller& biller, std::uint64_t bytes) {
  const auto fits = [&](std::int64_t capacity) {
    const std::optional<std::uint64_t> needed = biller.bytes(capacity);
    return needed && *needed <= bytes;
  };
  // From the largest block down: within one, what fits is a boundary.
  for (std::int64_t last = kMaxCapacity; last >= 1;) {
    const std::int64_t block = biller.block(last);
    const std::int64_t first =
        largest_that({0, last}, [&](std::int64_t capacity) { return biller.block(capacity) < block; }) + 1;
    if (fits(first)) return largest_that({first, last}, fits);
    last = first - 1;
  }
  return 0;
}

std::uint64_t workspace_at(const PlanRequest& request, std::int64_t tokens) {
  std::uint64_t most = 0;
  for (Caps caps : distinct_caps(request)) {
    caps.max_tokens = tokens;
    most = std::max(most, required_workspace_bytes(caps, request.device));
  }
  return most;
}

std::int64_t largest_capacity(const PlanRequest& request, std::uint64_t bytes) {
  std::int64_t least = kMaxCapacity;
  for (const Caps& caps : distinct_caps(request))
    least = std::min(least, largest_max_tokens(caps, request.device, bytes, kMaxCapacity));
  return least;
}

}  // namespace fourfold::cli
