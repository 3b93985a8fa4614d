// Experts in the CPU's packed layout (src/plan/cpu_weight_layout.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend_interface.h"
#include "cpu/micro_kernel.h"
#include "plan/cpu_weight_layout.h"

namespace fourfold::cpu {

/// One packed matrix, or gate and up together: where its parts lie.
struct PackedMatrix {
  const std::uint8_t* data = nullptr;    // [tiles][tile_bytes]
  const std::uint8_t* scales = nullptr;  // those of the first record, or [tiles][groups][64] fp32 apart from it
  const float* bias = nullptr;           // [tiles][64] or null
  float globals[2] = {1.0f, 1.0f};       // of each part
  std::int64_t scale_bytes = 1;
  std::int64_t scale_row_bytes = 0;   // from one group's scales to the next group's
  std::int64_t scale_tile_bytes = 0;  // from one tile's scales to the next tile's
  std::int64_t zeros_offset = -1;     // of the zero points in a record, -1 without
  CpuMatrixLayout layout;

  const std::uint8_t* tile_data(std::int64_t index) const noexcept { return data + index * layout.tile_bytes; }
  /// The tile from its panel `panel` (0 .. kCallPanels - 1) on.
  TileSource tile(std::int64_t index, int panel = 0) const noexcept {
    const std::uint8_t* const record = tile_data(index);
    return {record + layout.header_bytes + panel * kStepBytes,
            scales + index * scale_tile_bytes + panel * kPanelRows * scale_bytes,
            zeros_offset < 0 ? nullptr : record + zeros_offset + panel * kPanelRows, layout.record_bytes,
            scale_row_bytes};
  }
};

/// One packed expert. `format` names the kernels that read it.
struct PackedExpert {
  PanelFormat format = PanelFormat::nvfp4;
  PackedMatrix gate_up, down;
};

class PackedCpuExperts final : public PackedExperts {
 public:
  /// Packs every expert; panels of one expert in parallel on `threads` threads. Peak memory is the result and one
  /// expert of source. Throws bad_input for a missing tensor, unavailable when there is no memory.
  PackedCpuExperts(const Caps& caps, ExpertSource& source, int threads);
  std::uint64_t bytes() const noexcept override { return bytes_; }
  const PackedExpert& expert(std::int64_t index) const noexcept { return experts_[static_cast<std::size_t>(index)]; }

 private:
  struct Release {
    void operator()(std::uint8_t* data) const noexcept;
  };
  using Block = std::unique_ptr<std::uint8_t, Release>;
  Block allocate(std::int64_t bytes);  // counts into bytes_

  void pack(std::int64_t index, const ExpertMatrices& matrices, int threads);
  /// `parts` has one source for each part of the layout.
  void pack_matrix(std::int64_t index, const CpuMatrixLayout& layout, const MatrixSource* const* parts,
                   PanelFormat format, PackedMatrix& out, int threads);

  CpuWeightLayout layout_;
  std::uint64_t bytes_ = 0;
  Block block_;
  std::vector<Block> wide_scales_;  // fp32 scales of experts that 16 bits cannot hold
  std::vector<PackedExpert> experts_;
};

}  // namespace fourfold::cpu
