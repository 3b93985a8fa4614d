// What a capacity costs: of our plan, and of the systems that it is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan_report.h"

namespace fourfold::cli {

/// Who reserves, and how much at which capacity. Refers to the report that it was made of.
struct Biller {
  std::string system;  ///< "fourfold", or as in --compare
  bool ours = false;
  std::string refused;  ///< why there is no capacity at all; empty when there is
  /// The most that any rank reserves; empty where it cannot be planned, as no larger capacity then can.
  std::function<std::optional<std::uint64_t>(std::int64_t capacity)> bytes;
  /// The largest route block that the capacity can choose; never falls with it. Where it rises the bytes can fall,
  /// between they grow. One value for ours, whose bytes always grow.
  std::function<std::int64_t(std::int64_t capacity)> block;
};

/// Ours, unless the report refused it, then those of --compare.
std::vector<Biller> billers(const PlanReport& report);

/// The largest capacity for which `biller` reserves at most `bytes`; 0 for none.
std::int64_t largest_capacity(const Biller& biller, std::uint64_t bytes);

/// The largest workspace of any rank at a capacity of `tokens`.
std::uint64_t workspace_at(const PlanRequest& request, std::int64_t tokens);
/// The largest capacity whose workspace is at most `bytes` on every rank; -1 for none.
std::int64_t largest_capacity(const PlanRequest& request, std::uint64_t bytes);

inline constexpr std::int64_t kMaxCapacity = (std::int64_t{1} << 31) - 1;

}  // namespace fourfold::cli
