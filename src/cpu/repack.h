// Experts in the CPU's packed layout (src/plan/cpu_weight_layout.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend_interface.h"
#include "cpu/micro_kernel.h"
#include "plan/cpu_weight_layout.h"

namespace fourfold::cpu {

/// One packed matrix: where its parts lie. Pointers are null for parts that do not exist.
struct PackedMatrix {
  const std::uint8_t* codes = nullptr;   // [panels][steps][128]
  const std::uint8_t* scales = nullptr;  // [panels][groups][16] of scale_bytes
  const std::uint8_t* zeros = nullptr;   // [panels][groups][16]
  const float* bias = nullptr;           // [panels * 16]
  float global = 1.0f;
  std::int64_t scale_bytes = 1;
  std::int64_t panels = 0, steps = 0, groups = 0, group_steps = 0;

  PanelSource panel(std::int64_t index) const noexcept {
    return {codes + index * steps * kStepBytes, scales + index * groups * kPanelRows * scale_bytes,
            zeros ? zeros + index * groups * kPanelRows : nullptr};
  }
};

/// One packed expert. `format` names the kernels that read it.
struct PackedExpert {
  PanelFormat format = PanelFormat::nvfp4;
  PackedMatrix gate, up, down;  // gate has no panels when not gated
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

  CpuWeightLayout layout_;
  std::uint64_t bytes_ = 0;
  Block block_;
  std::vector<Block> wide_scales_;  // fp32 scales of experts that 16 bits cannot hold
  std::vector<PackedExpert> experts_;
};

}  // namespace fourfold::cpu
