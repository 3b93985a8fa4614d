// Properties of workspace placement.
#include "plan/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/error_code.h"

namespace fourfold {
namespace {

using support::code_of;

constexpr int kSteps = 6;

Arena random_arena(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t edge[] = {0, 1, 255, 256, 257, 511, 512, 513, 4096};
  Arena arena;
  const int count = 1 + static_cast<int>(random() % 12);
  for (int index = 0; index < count; ++index) {
    const std::int64_t bytes =
        random() % 2 ? edge[random() % std::size(edge)] : static_cast<std::int64_t>(random() >> (24 + random() % 40));
    const int a = static_cast<int>(random() % kSteps), b = static_cast<int>(random() % kSteps);
    EXPECT_EQ(arena.add("s" + std::to_string(index), bytes, std::min(a, b), std::max(a, b), "random"), index);
  }
  arena.place();
  return arena;
}

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Bytes of the segments alive at the busiest step: no placement needs less.
std::uint64_t busiest_step(const Arena& arena) {
  std::uint64_t most = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::uint64_t alive = 0;
    for (const Segment& segment : arena.segments())
      if (segment.first_step <= step && step <= segment.last_step) alive += padded(segment.bytes);
    most = std::max(most, alive);
  }
  return most;
}

TEST(Arena, SegmentsAliveTogetherNeverShareBytes) {
  std::int64_t pairs = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Arena arena = random_arena(seed);
    for (const Segment& a : arena.segments())
      for (const Segment& b : arena.segments()) {
        if (&a == &b || a.bytes == 0 || b.bytes == 0) continue;
        if (a.last_step < b.first_step || b.last_step < a.first_step) continue;
        ++pairs;
        ASSERT_TRUE(a.offset_bytes + a.bytes <= b.offset_bytes || b.offset_bytes + b.bytes <= a.offset_bytes)
            << "seed " << seed << ": " << a.name << " and " << b.name;
      }
  }
  EXPECT_GT(pairs, 10000);
}

TEST(Arena, EveryOffsetIsAlignedAndTheTotalIsTheHighestEnd) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Arena arena = random_arena(seed);
    std::uint64_t end = 0;
    for (const Segment& segment : arena.segments()) {
      ASSERT_EQ(segment.offset_bytes % 256, 0u) << "seed " << seed;
      if (segment.bytes > 0) end = std::max(end, segment.offset_bytes + segment.bytes);
    }
    ASSERT_EQ(arena.bytes(), padded(end)) << "seed " << seed;
  }
}

TEST(Arena, TotalIsAtLeastTheBusiestStepAndAtMostTheSum) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Arena arena = random_arena(seed);
    std::uint64_t sum = 0;
    for (const Segment& segment : arena.segments()) sum += padded(segment.bytes);
    ASSERT_GE(arena.bytes(), busiest_step(arena)) << "seed " << seed;
    ASSERT_LE(arena.bytes(), sum) << "seed " << seed;
  }
}

TEST(Arena, PlacementIsDeterministic) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Arena first = random_arena(seed), second = random_arena(seed);
    ASSERT_EQ(first.bytes(), second.bytes());
    ASSERT_EQ(first.segments().size(), second.segments().size());
    for (std::size_t index = 0; index < first.segments().size(); ++index)
      ASSERT_EQ(first.segments()[index].offset_bytes, second.segments()[index].offset_bytes) << "seed " << seed;
  }
}

TEST(Arena, SegmentsOfDisjointStepsShareBytes) {
  Arena arena;
  arena.add("early", 1000, 0, 1, "");
  arena.add("late", 900, 2, 3, "");
  arena.place();
  EXPECT_EQ(arena.bytes(), 1024u);
  EXPECT_EQ(arena.segments()[1].offset_bytes, 0u);
}

TEST(Arena, SegmentsThatShareOneStepDoNotShareBytes) {
  Arena arena;
  arena.add("a", 1000, 0, 1, "");
  arena.add("b", 900, 1, 2, "");
  arena.place();
  EXPECT_EQ(arena.bytes(), 2048u);
}

TEST(Arena, FillsTheLowestGapThatFits) {
  Arena arena;
  arena.add("bottom", 2048, 0, 0, "");      // [0, 2048) in step 0
  arena.add("whole life", 1024, 0, 1, "");  // [2048, 3072)
  arena.add("gap", 512, 1, 1, "");          // below it: bottom is gone in step 1
  arena.place();
  EXPECT_EQ(arena.segments()[1].offset_bytes, 2048u);
  EXPECT_EQ(arena.segments()[2].offset_bytes, 0u);
  EXPECT_EQ(arena.bytes(), 3072u);
}

TEST(Arena, NoBytesAreZeroBytes) {
  Arena arena;
  arena.place();
  EXPECT_EQ(arena.bytes(), 0u);
  arena.add("empty", 0, 0, 3, "");
  arena.place();
  EXPECT_EQ(arena.bytes(), 0u);
}

TEST(Arena, NegativeBytesAreRefused) {
  Arena arena;
  EXPECT_EQ(code_of([&] { arena.add("negative", -1, 0, 0, ""); }), ErrorCode::unsupported);
}

TEST(Arena, ALifeThatEndsBeforeItBeginsIsAFault) {
  Arena arena;
  EXPECT_EQ(code_of([&] { arena.add("backwards", 1, 2, 1, ""); }), ErrorCode::internal);
}

TEST(Arena, ASumPast63BitsIsRefused) {
  Arena arena;
  arena.add("half", std::int64_t{1} << 62, 0, 0, "");
  arena.add("other half", std::int64_t{1} << 62, 0, 0, "");
  EXPECT_EQ(code_of([&] { arena.place(); }), ErrorCode::unsupported);
}

TEST(Arena, PaddingPast63BitsIsRefused) {
  Arena arena;
  arena.add("all", INT64_MAX, 0, 0, "");
  EXPECT_EQ(code_of([&] { arena.place(); }), ErrorCode::unsupported);
}

TEST(Arena, TheLargestSumThatFitsIsPlaced) {
  Arena arena;
  arena.add("half", std::int64_t{1} << 62, 0, 0, "");
  arena.add("rest", (std::int64_t{1} << 62) - 256, 0, 0, "");
  arena.place();
  EXPECT_EQ(arena.bytes(), (std::uint64_t{1} << 63) - 256);
}

}  // namespace
}  // namespace fourfold
