// The dense kernels for any machine.
// The lanes come before what is written over them.
// clang-format off
#include "cpu/ops_vec16_portable.h"
#include "cpu/ops_rows.h"
// clang-format on

namespace fourfold::cpu {

const OpsKernels& ops_kernels_portable() {
  static constexpr OpsKernels kKernels = fp32_kernels();
  return kKernels;
}

}  // namespace fourfold::cpu
