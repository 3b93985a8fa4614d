// Placement of workspace segments: greedy by size over interval lifetimes (the offline form of dynamic storage
// allocation; largest first, lowest fit).
#include "plan/arena.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace fourfold {
namespace {

// Bytes a segment occupies in the placement: whole alignment units, so that every offset stays aligned.
std::uint64_t occupied_bytes(const Segment& segment) {
  const std::int64_t padded =
      checked_add(static_cast<std::int64_t>(segment.bytes), kSegmentAlignment - 1, segment.name.c_str());
  return static_cast<std::uint64_t>(padded) / kSegmentAlignment * kSegmentAlignment;
}

bool alive_together(const Segment& a, const Segment& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

}  // namespace

int Arena::add(std::string name, std::int64_t bytes, int first_step, int last_step, std::string formula) {
  check(bytes >= 0, ErrorCode::unsupported, "workspace segment \"{}\": {} bytes is not a size; use smaller caps", name,
        bytes);
  check(first_step >= 0 && first_step <= last_step, ErrorCode::internal,
        "workspace segment \"{}\": lives from step {} to step {}, which is no interval", name, first_step, last_step);
  Segment segment;
  segment.name = std::move(name);
  segment.formula = std::move(formula);
  segment.bytes = static_cast<std::uint64_t>(bytes);
  segment.first_step = first_step;
  segment.last_step = last_step;
  segments_.push_back(std::move(segment));
  return static_cast<int>(segments_.size()) - 1;
}

void Arena::place() {
  std::vector<std::size_t> order(segments_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return segments_[a].bytes > segments_[b].bytes; });

  bytes_ = 0;
  std::vector<const Segment*> placed;  // by ascending offset
  for (std::size_t index : order) {
    Segment& segment = segments_[index];
    segment.offset_bytes = 0;
    if (segment.bytes == 0) continue;
    const std::uint64_t size = occupied_bytes(segment);
    std::uint64_t offset = 0;
    for (const Segment* other : placed) {
      if (!alive_together(segment, *other)) continue;
      if (offset + size <= other->offset_bytes) break;  // both terms are below 2^63: no wrap
      offset = std::max(offset, other->offset_bytes + occupied_bytes(*other));
    }
    const std::int64_t end =
        checked_add(static_cast<std::int64_t>(offset), static_cast<std::int64_t>(size), "workspace");
    segment.offset_bytes = offset;
    bytes_ = std::max(bytes_, static_cast<std::uint64_t>(end));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &segment,
                         [](const Segment* a, const Segment* b) { return a->offset_bytes < b->offset_bytes; }),
        &segment);
  }
}

}  // namespace fourfold
