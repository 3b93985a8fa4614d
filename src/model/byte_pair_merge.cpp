// A linked list of symbols and a heap of possible merges; queued merges that went stale are skipped when popped.
#include "model/byte_pair_merge.h"

#include <algorithm>

#include "core/check.h"

namespace fourfold {
namespace {

constexpr std::int32_t kJoinedAway = -2;

bool comes_later(const MergeScratch::Step& a, const MergeScratch::Step& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

void byte_pair_merge(std::string_view piece, const std::int32_t* byte_ids, const MergeTable& merges,
                     MergeScratch& scratch, std::vector<std::int32_t>& out) {
  check(piece.size() < (std::size_t{1} << 31), ErrorCode::usage, "a piece of {} bytes without a cut; below 2^31 please",
        piece.size());
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto count = static_cast<std::int32_t>(piece.size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({byte_ids[static_cast<unsigned char>(piece[i])], i - 1, i + 1 < count ? i + 1 : -1});

  const auto step_at = [&](std::int32_t position, MergeScratch::Step& step) {
    const std::int32_t next = symbols[position].next;
    if (next < 0) return false;
    const Merge* merge = merges.find(symbols[position].id, symbols[next].id);
    if (merge == nullptr) return false;
    step = {merge->rank, position, symbols[position].id, symbols[next].id, merge->result};
    return true;
  };
  MergeScratch::Step step{};
  for (std::int32_t i = 0; i + 1 < count; ++i)
    if (step_at(i, step)) heap.push_back(step);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  const auto queue = [&](std::int32_t position) {
    if (!step_at(position, step)) return;
    heap.push_back(step);
    std::push_heap(heap.begin(), heap.end(), comes_later);
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const MergeScratch::Step top = heap.back();
    heap.pop_back();
    auto& left = symbols[top.position];
    if (left.next < 0 || left.id != top.left || symbols[left.next].id != top.right) continue;
    auto& right = symbols[left.next];
    left.id = top.result;
    const std::int32_t after = right.next;
    right.next = kJoinedAway;
    left.next = after;
    if (after >= 0) symbols[after].previous = top.position;
    if (left.previous >= 0) queue(left.previous);
    queue(top.position);
  }
  for (std::int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace fourfold
