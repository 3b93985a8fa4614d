// The dense kernels for AVX-512 with the bf16 dot product (Intel SDM, VDPBF16PS: products of a pair summed into fp32,
// subnormal bf16 inputs and results read as zero).
// The lanes come before what is written over them.
// clang-format off
#include "cpu/ops_vec16_avx512.h"
#include "cpu/ops_rows.h"
// clang-format on

namespace fourfold::cpu {
namespace {

/// Weights bf16 in pairs, x bf16.
struct Bf16DotBf16 {
  using Panel = __m512i;
  using X = std::uint16_t;
  static constexpr std::int64_t kStepBytes = 64;
  static Panel panel(const std::byte* w) { return _mm512_loadu_si512(w); }
  static __m512i pair(const std::uint16_t* x) {
    int bits;
    std::memcpy(&bits, x, sizeof bits);
    return _mm512_set1_epi32(bits);
  }
  static Vec step(Panel p, __m512i x, Vec sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(p), reinterpret_cast<__m512bh>(x));
  }
  static Vec last(const std::byte* w, const std::uint16_t* x, Vec sum) {
    const Panel even = _mm512_and_si512(panel(w), _mm512_set1_epi32(0xffff));
    return step(even, _mm512_set1_epi32(*x), sum);
  }
};

constexpr OpsKernels dot_kernels() {
  OpsKernels k = fp32_kernels();
  k.tile_bf16_bf16 = tiles<Bf16DotBf16>;
  k.softmax_bf16 = softmax_bf16;
  return k;
}

}  // namespace

const OpsKernels& ops_kernels_avx512_bf16() {
  static constexpr OpsKernels kKernels = dot_kernels();
  return kKernels;
}

}  // namespace fourfold::cpu
