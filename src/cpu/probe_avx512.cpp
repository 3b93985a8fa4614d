// Probe bodies for AVX-512 with fp32 FMA.
#include <immintrin.h>

#include "cpu/probe_bodies.h"

namespace fourfold::cpu {
namespace {

struct Avx512 {
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  using Operand = Floats;
  static Operand operand() { return Floats{} + 0.5f; }
  static Floats step(Floats sum, Operand a, Operand b) {
    return (Floats)_mm512_fmadd_ps((__m512)sum, (__m512)a, (__m512)b);
  }
};
constexpr int kSums = 24;

}  // namespace

ProbeBodies probe_bodies_avx512() {
  return {probe_read<Avx512>, probe_multiply<Avx512, kSums>, kSums * 16 * 2, nullptr, 0};
}

}  // namespace fourfold::cpu
