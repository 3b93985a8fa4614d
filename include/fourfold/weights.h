// 4-bit expert weights: what they mean, how a caller hands them over, and the packed result.
//
// A weight of row n and reduction position k in group j = k / group_size is
//   nvfp4: e2m1(code) * e4m3(scale[n, j]) * global          (group 16, global per expert and matrix, fp32)
//   mxfp4: e2m1(code) * 2^(scale[n, j] - 127)               (group 32; scale byte 255 is NaN; OCP MX v1.0, 5.3)
//   int4:  (code - zero[n, j]) * scale[n, j]                (code 0..15, zero 8 when there are no zero points)
//   exl3:  trellis codes of `bits` bits in tiles of 16 x 16, rotated (EXL3): priced, not run
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fourfold/tensor.h"

namespace fourfold {

enum class WeightFormat : std::uint8_t { nvfp4, mxfp4, int4, exl3 };

/// A format with its parameters. `group_size` counts positions along the reduction axis.
struct FormatSpec {
  WeightFormat format = WeightFormat::nvfp4;
  std::int64_t group_size =
      16;                    ///< nvfp4: 16; mxfp4: 32; int4: 16, 32, 64, 96, 128, 256 or 0 = the whole row; exl3: 16
  bool zero_points = false;  ///< int4 only: one zero point (0..15) per row and group
  std::int64_t bits = 4;     ///< of a code; exl3: 2..8, others 4

  static FormatSpec nvfp4() { return {WeightFormat::nvfp4, 16, false, 4}; }
  static FormatSpec mxfp4() { return {WeightFormat::mxfp4, 32, false, 4}; }
  static FormatSpec int4(std::int64_t group, bool zeros = false) { return {WeightFormat::int4, group, zeros, 4}; }
  static FormatSpec exl3(std::int64_t bits = 3) { return {WeightFormat::exl3, 16, false, bits}; }
  bool operator==(const FormatSpec&) const = default;
};

/// "nvfp4", "mxfp4", "int4", "exl3". Pure.
std::string_view weight_format_name(WeightFormat format) noexcept;
/// Groups in a row of `k` positions: ceil(k / group), the last one possibly short. Pure.
std::int64_t groups_per_row(const FormatSpec& spec, std::int64_t k) noexcept;

/// Order of the rows of a fused [2 * intermediate, hidden] gate/up matrix.
enum class GateUpOrder : std::uint8_t {
  gate_up,      ///< all gate rows, then all up rows
  up_gate,      ///< all up rows, then all gate rows
  interleaved,  ///< gate 0, up 0, gate 1, up 1, ...
};

/// One matrix [rows, k] of one expert, as pointers with row strides, so that a half of a fused or interleaved
/// tensor is described without a copy. Owns nothing. Pointers need no alignment.
struct MatrixSource {
  const std::uint8_t* codes = nullptr;  ///< [rows, k / 2] bytes, low nibble = even k
  std::int64_t codes_row_bytes = 0;     ///< distance between rows
  const void* scales = nullptr;         ///< [rows, groups]: nvfp4 E4M3 bytes, mxfp4 E8M0 bytes, int4 scale_dtype
  DType scale_dtype = DType::f8_e4m3;   ///< int4: bf16, f16 or f32; nvfp4: f8_e4m3; mxfp4: u8 or f8_e8m0
  std::int64_t scales_row_bytes = 0;    ///< distance between rows
  const std::uint8_t* zeros = nullptr;  ///< [rows, groups] one byte each, 0..15; int4 with zero points only
  std::int64_t zeros_row_bytes = 0;
  const void* bias = nullptr;          ///< [rows], optional
  DType bias_dtype = DType::bf16;      ///< bf16, f16 or f32
  std::int64_t bias_stride_bytes = 0;  ///< distance between the entries of two rows
  float global_scale = 1.0f;           ///< nvfp4: multiplies; finite and positive, or refused. Others: 1
};

/// The matrices of one expert: gate and up are [intermediate, hidden], down is [hidden, intermediate].
/// Without a gate (relu2) the single first projection is `up` and `gate` stays empty.
struct ExpertMatrices {
  MatrixSource gate, up, down;
};

/// Hands over one expert after the other; prepare_weights asks for 0 .. experts-1, each once.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  /// The views stay valid until the next call. Throws bad_input for a damaged or missing tensor.
  virtual ExpertMatrices expert(std::int64_t index) = 0;
};

/// All experts of a layer in stacked tensors (E experts, N1 = 2 * intermediate, or intermediate when not gated).
struct StackedExperts {
  GateUpOrder order = GateUpOrder::gate_up;
  ConstTensorView gate_up_codes;   ///< u8 [E, N1, hidden / 2]
  ConstTensorView gate_up_scales;  ///< [E, N1, groups(hidden)]
  ConstTensorView gate_up_zeros;   ///< u8 [E, N1, groups(hidden)], int4 with zero points
  ConstTensorView gate_up_global;  ///< f32 [E, 2] (gate, up) or [E, 1] not gated; nvfp4
  ConstTensorView gate_up_bias;    ///< [E, N1], optional
  ConstTensorView down_codes;      ///< u8 [E, hidden, intermediate / 2]
  ConstTensorView down_scales;     ///< [E, hidden, groups(intermediate)]
  ConstTensorView down_zeros;      ///< as above
  ConstTensorView down_global;     ///< f32 [E]; nvfp4
  ConstTensorView down_bias;       ///< [E, hidden], optional
};

struct Caps;
/// A source over stacked tensors; keeps views, so the tensors must outlive it. Checks every shape and dtype
/// against `caps`; throws bad_input naming tensor, value and expectation.
std::unique_ptr<ExpertSource> stacked_source(const StackedExperts& experts, const Caps& caps);

class PackedExperts;  // a backend's own layout, src/backend/backend_interface.h

/// The packed experts of one layer: one owner, immutable, shareable between threads and streams.
class ExpertWeights {
 public:
  ExpertWeights() = default;
  explicit ExpertWeights(std::shared_ptr<const PackedExperts> packed) : packed_(std::move(packed)) {}
  /// Bytes of the packed layout, its padding included. The allocator rounds large blocks up to pages of 2 MiB.
  std::uint64_t bytes() const noexcept;
  /// True before prepare_weights gave it something.
  bool empty() const noexcept { return packed_ == nullptr; }
  /// The backend's own layout, for src/ and tests.
  const std::shared_ptr<const PackedExperts>& packed() const noexcept { return packed_; }

 private:
  std::shared_ptr<const PackedExperts> packed_;
};

}  // namespace fourfold
