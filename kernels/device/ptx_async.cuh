// Asynchronous copies, barriers and dependent launch, one PTX instruction a function.
#pragma once

#include "params/integers.h"

namespace fourfold::kernels {

/// Address in the shared window, as the instructions below and 32-bit address arithmetic want it.
__device__ inline UInt32 shared_address(const void* pointer) {
  return static_cast<UInt32>(__cvta_generic_to_shared(pointer));
}

/// Copies `bytes` (16 or 0) and fills up to 16 with zeros. Past L1: nothing here is read twice by a multiprocessor.
__device__ inline void copy_async_16(UInt32 to_shared, const void* from, UInt32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(bytes) : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kGroups of the newest committed groups of this thread are under way.
template <int kGroups>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

/// An mbarrier: 8 bytes of shared memory, aligned to 8, whose phase ends when `arrivals` threads have arrived. By one
/// thread, before a __syncthreads().
__device__ inline void barrier_init(UInt32 barrier, UInt32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// What this thread wrote before is seen by whoever waits for the end of the phase.
__device__ inline void barrier_arrive(UInt32 barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Waits until the phase of this parity has ended: 0 for the first, 1 for the second, and so on in turn.
__device__ inline void barrier_wait(UInt32 barrier, UInt32 parity) {
  UInt32 ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
#else
        "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!ended);
}

__device__ inline uint4 load_shared_16(UInt32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ inline uint2 load_shared_8(UInt32 address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}

__device__ inline UInt32 load_shared_4(UInt32 address) {
  UInt32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

__device__ inline UInt32 load_shared_2(UInt32 address) {
  UInt16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
  return v;
}

__device__ inline UInt32 load_shared_1(UInt32 address) {
  UInt32 v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/// Waits until the kernels before this one have ended and their writes are visible (programmatic dependent launch).
__device__ inline void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// Lets the next kernel of the stream start. After the wait, so that it may read what is older than this kernel.
__device__ inline void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
__device__ inline void wait_for_previous_kernel() {}
__device__ inline void let_next_kernel_start() {}
#endif

}  // namespace fourfold::kernels
