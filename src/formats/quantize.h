// From fp32 matrices to 4-bit ones by round to nearest, ties to even, along the reduction axis.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fourfold/weights.h"

namespace fourfold {

/// A 4-bit matrix [rows, k] that owns its bytes, in the form that MatrixSource describes (dense rows).
struct QuantizedMatrix {
  std::int64_t rows = 0;
  std::int64_t k = 0;
  FormatSpec spec;
  std::vector<std::uint8_t> codes;   ///< [rows, k / 2], low nibble = even k
  std::vector<std::uint8_t> scales;  ///< raw bytes [rows, groups] of scale_dtype, little-endian
  DType scale_dtype = DType::f8_e4m3;
  std::vector<std::uint8_t> zeros;  ///< [rows, groups], 0..15; only with spec.zero_points
  float global_scale = 1.0f;        ///< nvfp4: multiplies

  /// A view of it; valid while the vectors live and keep their storage. No bias.
  MatrixSource source() const noexcept;
};

/// Quantises w [rows, k] (row-major). k is even and positive; the last group of a row may be short.
///   nvfp4  global g = amax / (6 * 448), at least 2^-126; scale s = e4m3(amax_block / 6 / g); code = e2m1(w / (s * g)).
///          four_over_six: each block also tries amax_block / 4 and keeps it when its squared error is smaller.
///   mxfp4  scale 2^e, e = floor(log2(amax_block)) - 2 within [-127, 127]; code = e2m1(w / 2^e).
///   int4   s = bf16(amax_group / 7), q = round(w / s) within [-8, 7], stored q + 8, zero point 8 understood.
///   int4 with zero points: lo = min(0, min), hi = max(0, max), s = bf16((hi - lo) / 15), zero = round(-lo / s) and
///          code = round(w / s) + zero, both within [0, 15].
/// A group of zeros, or one whose scale rounds to zero, decodes to exact zeros (its error is then the value itself):
/// codes 0 and scale 0 (nvfp4), byte 127 (mxfp4), codes 8 and scale 1 (int4), codes and zero 0 and scale 1 (int4 with
/// zero points). A matrix of zeros has global scale 1. No NaN or infinity is ever produced.
/// Scale dtypes made: f8_e4m3, f8_e8m0, bf16. Uses OpenMP over rows; the result does not depend on the threads.
/// Throws unsupported (format, odd k, sizes that overflow), usage (four_over_six without nvfp4, span of another size),
/// bad_input naming row and column of the first weight that is not finite.
QuantizedMatrix quantize_matrix(std::span<const float> w, std::int64_t rows, std::int64_t k, const FormatSpec& spec,
                                bool four_over_six = false);

}  // namespace fourfold
