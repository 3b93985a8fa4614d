// Arithmetic on two 16-bit floats in a word, one PTX instruction a function. Subnormals are kept.
#pragma once

#include "params/integers.h"

namespace fourfold::kernels {

__device__ inline UInt32 fma_bf16x2(UInt32 a, UInt32 b, UInt32 c) {
  UInt32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline UInt32 mul_bf16x2(UInt32 a, UInt32 b) {
  UInt32 d;
  asm("mul.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

__device__ inline UInt32 add_bf16x2(UInt32 a, UInt32 b) {
  UInt32 d;
  asm("add.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
#else
/// a * b + (-0): the product with its sign, also of a zero.
__device__ inline UInt32 mul_bf16x2(UInt32 a, UInt32 b) { return fma_bf16x2(a, b, 0x80008000u); }
/// a * 1 + b.
__device__ inline UInt32 add_bf16x2(UInt32 a, UInt32 b) { return fma_bf16x2(a, 0x3f803f80u, b); }
#endif

__device__ inline UInt32 mul_f16x2(UInt32 a, UInt32 b) {
  UInt32 d;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

__device__ inline UInt32 add_f16x2(UInt32 a, UInt32 b) {
  UInt32 d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

}  // namespace fourfold::kernels
