// Rows of activations on their way in and out: caller's dtype to compute type, fp32 sums to caller's dtype.
#pragma once

#include <cstdint>

#include "cpu/micro_kernel.h"
#include "fourfold/plan.h"

namespace fourfold::cpu {

/// in [columns] of `dtype` (bf16, f16, f32) -> out [padded_columns] bf16 bits (bf16_dot, dtype bf16) or fp32, exact;
/// zeros from `columns` on. `in` needs no alignment.
void gather_row(const void* in, DType dtype, std::int64_t columns, std::int64_t padded_columns, bool bf16_dot,
                std::uint8_t* out) noexcept;

/// in [columns] fp32 -> out [columns] of `dtype`, one rounding to nearest even. `out` needs no alignment.
void store_row(const float* in, std::int64_t columns, DType dtype, void* out) noexcept;

/// The kernels' form of an activation: defaults filled in, everything else of the call left alone.
void describe_activation(const Activation& activation, DType dtype, ActivateCall& call) noexcept;

}  // namespace fourfold::cpu
