// Probe bodies for the bf16 dot product: two multiply-adds a lane.
#include <immintrin.h>

#include "cpu/probe_bodies.h"

namespace fourfold::cpu {
namespace {

struct Avx512Bf16 {
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  using Operand = Words;
  static Operand operand() { return Words{} + 0x3f003f00u; }  // pairs of 0.5
  static Floats step(Floats sum, Operand a, Operand b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }
};
constexpr int kSums = 24;

}  // namespace

ProbeBodies probe_bodies_avx512_bf16() {
  ProbeBodies bodies = probe_bodies_avx512();
  bodies.multiply_bf16 = probe_multiply<Avx512Bf16, kSums>;
  bodies.bf16_operations_per_round = kSums * 16 * 2 * 2;
  return bodies;
}

}  // namespace fourfold::cpu
