// One call of the MoE operation on the CPU.
#pragma once

#include "backend/backend_interface.h"
#include "cpu/micro_kernel.h"

namespace fourfold::cpu {

/// Runs a checked call with tokens > 0; the result is in bound.out on return. One parallel region; allocates nothing.
/// Bits depend on neither threads nor batch. Thread-safe on different workspaces.
void run_moe(const BoundMoe& bound, const MicroKernels& kernels);

}  // namespace fourfold::cpu
