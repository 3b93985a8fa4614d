// Probe bodies of the baseline.
#include "cpu/probe_bodies.h"

namespace fourfold::cpu {
namespace {

struct Portable {
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::uint32_t Words __attribute__((vector_size(16)));
  using Operand = Floats;
  static Operand operand() { return Floats{} + 0.5f; }
  static Floats step(Floats sum, Operand a, Operand b) { return sum * a + b; }
};
constexpr int kSums = 12;  // of 16 registers

}  // namespace

ProbeBodies probe_bodies_portable() {
  return {probe_read<Portable>, probe_multiply<Portable, kSums>, kSums * 4 * 2, nullptr, 0};
}

}  // namespace fourfold::cpu
