// The CPU as a device: memory, packing, runs, dense operations, probes.
#pragma once

#include <memory>

#include "backend/backend_interface.h"
#include "cpu/micro_kernel.h"
#include "fourfold/settings.h"

namespace fourfold::cpu {

/// The table that serves `isa`; `bf16_dot` asks for the bf16 dot product, which only avx512_bf16 has. Pure.
const MicroKernels& micro_kernels(CpuIsa isa, bool bf16_dot) noexcept;

/// Throws usage for settings.cpu_isa that is no instruction set.
std::unique_ptr<BackendInterface> make_cpu_interface(const Settings& settings);

}  // namespace fourfold::cpu
