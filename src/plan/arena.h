// The ledger of the workspace: the only source of sizes and of offsets. Segments whose lifetimes do not overlap
// may share bytes; every offset is a multiple of 256.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fourfold/plan.h"

namespace fourfold {

inline constexpr std::uint64_t kSegmentAlignment = 256;

/// Collects segments, then places them. Not thread-safe; used while planning only.
class Arena {
 public:
  /// Registers a segment that lives from `first_step` to `last_step` inclusive. Returns its index, which is also
  /// its index in segments(). `bytes` is exact; 0 is allowed. Throws unsupported when negative.
  int add(std::string name, std::int64_t bytes, int first_step, int last_step, std::string formula);
  /// Assigns offsets: largest first, each at the lowest offset free for its whole life. Deterministic.
  void place();
  const std::vector<Segment>& segments() const noexcept { return segments_; }
  /// Highest end of a segment, rounded up to 256. Valid after place(). 0 when there are no bytes.
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<Segment> segments_;
  std::uint64_t bytes_ = 0;
};

}  // namespace fourfold
