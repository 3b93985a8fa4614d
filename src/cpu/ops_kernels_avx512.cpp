// The dense kernels for AVX-512.
// The lanes come before what is written over them.
// clang-format off
#include "cpu/ops_vec16_avx512.h"
#include "cpu/ops_rows.h"
// clang-format on

namespace fourfold::cpu {

const OpsKernels& ops_kernels_avx512() {
  static constexpr OpsKernels kKernels = fp32_kernels();
  return kKernels;
}

}  // namespace fourfold::cpu
