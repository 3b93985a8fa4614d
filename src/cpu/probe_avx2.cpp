// Probe bodies for AVX2 with FMA.
#include <immintrin.h>

#include "cpu/probe_bodies.h"

namespace fourfold::cpu {
namespace {

struct Avx2 {
  typedef float Floats __attribute__((vector_size(32)));
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  using Operand = Floats;
  static Operand operand() { return Floats{} + 0.5f; }
  static Floats step(Floats sum, Operand a, Operand b) {
    return (Floats)_mm256_fmadd_ps((__m256)sum, (__m256)a, (__m256)b);
  }
};
constexpr int kSums = 12;  // of 16 registers; two pipes of four or five cycles need ten

}  // namespace

ProbeBodies probe_bodies_avx2() { return {probe_read<Avx2>, probe_multiply<Avx2, kSums>, kSums * 8 * 2, nullptr, 0}; }

}  // namespace fourfold::cpu
