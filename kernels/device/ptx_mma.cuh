// Warp-level matrix products, one PTX instruction a function: PTX ISA, "Matrix multiply-accumulate operation using
// mma", m16n8k16 for .bf16 and .f16.
#pragma once

#include "params/integers.h"

namespace fourfold::kernels {

/// c[16 x 8] += a[16 x 16] b[16 x 8], bf16 in, fp32 sums. Lane = 4 g + t holds rows g (c0 c1 a0 a2) and g + 8.
__device__ inline void mma_m16n8k16_bf16(float (&c)[4], const UInt32* a, UInt32 b0, UInt32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void mma_m16n8k16_f16(float (&c)[4], const UInt32* a, UInt32 b0, UInt32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace fourfold::kernels
