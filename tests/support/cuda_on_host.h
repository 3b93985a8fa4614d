// Enough of CUDA C++ to compile a kernel without barriers or shared memory as C++ and run its threads one by one.
// Include it before the text of a kernel, in one source only.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "support/cuda_order.h"

#define __global__
#define __device__
#define __launch_bounds__(...)

/// The built-in variables. A launch sets them for each thread it plays.
struct CudaDim {
  unsigned x = 0, y = 0, z = 0;
};
inline thread_local CudaDim gridDim, blockDim, blockIdx, threadIdx;

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline unsigned atomicAdd(unsigned* word, unsigned value) { return __atomic_fetch_add(word, value, __ATOMIC_RELAXED); }

namespace support {

/// Plays a launch of gx x gy blocks of `threads` threads.
template <class Kernel, class Params>
void play_launch(Kernel kernel, const Params& params, std::int64_t gx, std::int64_t gy, int threads,
                 ThreadOrder order) {
  gridDim = {static_cast<unsigned>(gx), static_cast<unsigned>(gy), 1};
  blockDim = {static_cast<unsigned>(threads), 1, 1};
  const std::int64_t count = gx * gy * threads;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = order == ThreadOrder::ascending ? i : count - 1 - i;
    threadIdx = {static_cast<unsigned>(at % threads), 0, 0};
    blockIdx = {static_cast<unsigned>(at / threads % gx), static_cast<unsigned>(at / threads / gx), 0};
    kernel(params);
  }
}

}  // namespace support
