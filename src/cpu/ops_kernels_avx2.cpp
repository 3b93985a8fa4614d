// The dense kernels for AVX2 and FMA.
// The lanes come before what is written over them.
// clang-format off
#include "cpu/ops_vec16_avx2.h"
#include "cpu/ops_rows.h"
// clang-format on

namespace fourfold::cpu {

const OpsKernels& ops_kernels_avx2() {
  static constexpr OpsKernels kKernels = fp32_kernels();
  return kKernels;
}

}  // namespace fourfold::cpu
