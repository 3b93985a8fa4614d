// From 4-bit matrices to fp32: the definition in fourfold/weights.h, evaluated.
#pragma once

#include <cstdint>

#include "fourfold/weights.h"

namespace fourfold {

/// Scale number `index` of a row whose scales start at `scales` (no alignment needed). nvfp4 reads E4M3, mxfp4 E8M0
/// (u8 or f8_e8m0), int4 bf16, f16 or f32. Exact. Throws unsupported for another dtype. Thread-safe.
float scale_value(const FormatSpec& spec, DType scale_dtype, const void* scales, std::int64_t index);

/// out[rows, k] fp32, row-major. nvfp4: code * scale is exact, then one rounding by * global. mxfp4 and int4 with bf16
/// or f16 scales: exact where fp32 can hold it (overflow gives infinity). Zero points absent mean 8.
/// A NaN scale makes its whole group NaN, an infinite one gives infinities, and NaN where the code means zero.
/// Throws unsupported (format, odd k, scale dtype), bad_input (zero points missing). Thread-safe; allocates nothing.
void dequantize(const MatrixSource& source, std::int64_t rows, std::int64_t k, const FormatSpec& spec, float* out);

}  // namespace fourfold
