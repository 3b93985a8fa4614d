// Dense weights in panels of sixteen rows, and the split of a matrix product over threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/ops.h"
#include "cpu/ops_kernels.h"

namespace fourfold::cpu {

struct FreeAligned {
  void operator()(std::byte* data) const noexcept;
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
/// `bytes` aligned to 64, not initialised. Throws unavailable.
AlignedBytes allocate_aligned(std::int64_t bytes);

/// [ceil(n / 16)] panels, each [k / 2][16][2] bf16 or [k][16] fp32; rows beyond n are zero.
class PanelWeight final : public DenseWeight {
 public:
  PanelWeight(ConstTensorView weight, ConstTensorView bias, DType activations);
  std::int64_t rows() const noexcept override { return rows_; }
  std::int64_t columns() const noexcept override { return columns_; }
  std::uint64_t bytes() const noexcept override;
  bool is_bf16() const noexcept { return is_bf16_; }
  std::int64_t panels() const noexcept { return (rows_ + kPanelRows - 1) / kPanelRows; }
  std::int64_t panel_bytes() const noexcept { return columns_ * kPanelRows * (is_bf16_ ? 2 : 4); }
  const std::byte* panel(std::int64_t index) const noexcept { return data_.get() + index * panel_bytes(); }
  const float* bias() const noexcept { return reinterpret_cast<const float*>(bias_.get()); }
  /// One row as fp32 [columns].
  void row(std::int64_t index, float* out) const noexcept;

 private:
  void pack(ConstTensorView weight);
  std::int64_t rows_, columns_;
  bool is_bf16_;
  AlignedBytes data_;
  AlignedBytes bias_;  // fp32 [rows] or null
};

/// Scratch of matmul below for x of `k` columns that `kernels` cannot take as bf16; 0 otherwise.
std::int64_t matmul_scratch(const OpsKernels& kernels, std::int64_t k, bool x_is_bf16, int threads);
/// One parallel region at most; none for small products.
void matmul(const OpsKernels& kernels, const PanelWeight& weight, const MatmulCall& call, int threads);

}  // namespace fourfold::cpu
