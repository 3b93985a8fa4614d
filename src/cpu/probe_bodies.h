// Bodies of the probes for one instruction set. Plain data and internal linkage only: included by files compiled for
// different instruction sets.
#pragma once

#include <cstdint>

namespace fourfold::cpu {

/// Called by every thread at once.
struct ProbeBodies {
  /// Reads `bytes` (a multiple of 4096) with the widest loads; the result depends on all of them.
  std::uint32_t (*read)(const std::uint8_t* data, std::int64_t bytes);
  /// `rounds` rounds of independent multiply-adds in registers; each counts as two operations.
  float (*multiply_f32)(std::int64_t rounds);
  std::int64_t f32_operations_per_round;
  float (*multiply_bf16)(std::int64_t rounds);  // null: no bf16 dot product
  std::int64_t bf16_operations_per_round;
};

ProbeBodies probe_bodies_portable();
#if defined(__x86_64__)
ProbeBodies probe_bodies_avx2();
ProbeBodies probe_bodies_avx512();
ProbeBodies probe_bodies_avx512_bf16();
#endif

namespace {

/// Four independent streams a thread: as many as a core keeps in flight without help.
template <class Isa>
std::uint32_t probe_read(const std::uint8_t* data, std::int64_t bytes) {
  constexpr std::int64_t kStreams = 4;
  const std::int64_t part = bytes / kStreams;
  typename Isa::Words sums[kStreams] = {};
  for (std::int64_t i = 0; i < part; i += static_cast<std::int64_t>(sizeof(typename Isa::Words)))
#pragma GCC unroll 4
    for (std::int64_t s = 0; s < kStreams; ++s) {
      typename Isa::Words value;
      __builtin_memcpy(&value, data + s * part + i, sizeof value);
      sums[s] ^= value;
    }
  const typename Isa::Words all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  std::uint32_t result = 0;
  for (unsigned i = 0; i < sizeof all / 4; ++i) result ^= all[i];
  return result;
}

/// kSums independent chains of Isa::step: enough to fill two pipes of five cycles, few enough to stay in registers.
template <class Isa, int kSums>
float probe_multiply(std::int64_t rounds) {
  typename Isa::Floats sums[kSums] = {};
  typename Isa::Operand a = Isa::operand(), b = Isa::operand();
#pragma GCC unroll 32
  for (int s = 0; s < kSums; ++s) __asm__ volatile("" : "+x"(sums[s]));  // equal starts would be one chain, not kSums
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int s = 0; s < kSums; ++s) sums[s] = Isa::step(sums[s], a, b);
    __asm__ volatile("" : "+x"(a), "+x"(b));  // or the compiler would see the same product every round
  }
  float result = 0;
  for (int s = 0; s < kSums; ++s) result += sums[s][0];
  return result;
}

}  // namespace
}  // namespace fourfold::cpu
