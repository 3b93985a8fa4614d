// A layer in units: every expert in its place, globals and biases beside, nothing unwritten, one expert in host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda/pack_experts.h"
#include "cuda/pack_units.h"
#include "fourfold/verify.h"
#include "support/moe_layer.h"

namespace fourfold::cuda {
namespace {

/// A layer packed into host memory that began as 0xa5.
struct Packed {
  explicit Packed(const std::string& problem) : caps(support::caps_of(problem)), experts(caps, 7) {
    const auto source = stacked_source(experts.stacked(), caps);
    const PackTarget target{[&](std::uint64_t layer_bytes, std::uint64_t expert_bytes) {
                              bytes.assign(layer_bytes, std::byte{0xa5});
                              written.assign(layer_bytes, false);
                              staging.assign(expert_bytes, std::byte{0x5a});
                              return std::span(staging);
                            },
                            [&](std::uint64_t offset, std::span<const std::byte> piece) {
                              std::memcpy(bytes.data() + offset, piece.data(), piece.size());
                              std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(offset), piece.size(), true);
                            },
                            [&] { std::fill(staging.begin(), staging.end(), std::byte{0x5a}); }};
    layer = pack_unit_layer(caps, *source, target);
  }
  Caps caps;
  RandomExperts experts;
  std::vector<std::byte> bytes, staging;
  std::vector<bool> written;
  UnitLayer layer;
};

TEST(PackUnitLayer, EveryExpertHasItsUnits) {
  for (const char* problem : {"t1 k1 e3 h72 i40 nvfp4 bf16 silu", "t1 k1 e3 h72 i40 mxfp4 f16 relu2",
                              "t1 k1 e3 h72 i40 int4 g32 zp bf16 silu"}) {
    Packed packed(problem);
    const auto source = stacked_source(packed.experts.stacked(), packed.caps);
    const bool gated = packed.caps.activation.gated();
    const bool permute =
        packed.caps.format.format != WeightFormat::int4 && packed.caps.activation_dtype == DType::bf16;
    for (std::int64_t expert = 0; expert < 3; ++expert) {
      const ExpertMatrices matrices = source->expert(expert);
      const MatrixSource gate_up[] = {gated ? matrices.gate : matrices.up, matrices.up};
      const auto expect = [&](const CudaUnitMatrix& matrix, std::span<const MatrixSource> parts) {
        std::vector<std::byte> units(static_cast<std::size_t>(matrix.expert_bytes()));
        pack_units(packed.caps.format, matrix, permute, parts, units);
        EXPECT_EQ(std::memcmp(packed.bytes.data() + matrix.units + expert * matrix.expert_bytes(), units.data(),
                              units.size()),
                  0)
            << problem << " expert " << expert;
      };
      expect(packed.layer.layout.gate_up, std::span(gate_up).first(gated ? 2 : 1));
      expect(packed.layer.layout.down, std::span(&matrices.down, 1));
    }
  }
}

TEST(PackUnitLayer, GlobalScalesAndBiasesFollowTheirExperts) {
  Packed packed("t1 k1 e4 h64 i24 nvfp4 bf16 silu bias");
  const auto source = stacked_source(packed.experts.stacked(), packed.caps);
  const auto value = [&](std::int64_t offset, std::int64_t index) {
    float single = 0;
    std::memcpy(&single, packed.bytes.data() + offset + index * 4, 4);
    return single;
  };
  const CudaUnitLayout& layout = packed.layer.layout;
  for (std::int64_t expert = 0; expert < 4; ++expert) {
    const ExpertMatrices matrices = source->expert(expert);
    EXPECT_EQ(value(layout.gate_up.global, 2 * expert), matrices.gate.global_scale);
    EXPECT_EQ(value(layout.gate_up.global, 2 * expert + 1), matrices.up.global_scale);
    EXPECT_EQ(value(layout.down.global, expert), matrices.down.global_scale);
    const auto bias = [](const MatrixSource& matrix, std::int64_t row) {
      return bias_value(static_cast<const std::byte*>(matrix.bias) + row * matrix.bias_stride_bytes,
                        matrix.bias_dtype);
    };
    for (const std::int64_t row : {0, 11, 23}) {
      EXPECT_EQ(value(layout.gate_up.bias, expert * 48 + row), bias(matrices.gate, row));
      EXPECT_EQ(value(layout.gate_up.bias, expert * 48 + 24 + row), bias(matrices.up, row));
      EXPECT_EQ(value(layout.down.bias, expert * 64 + row), bias(matrices.down, row));
    }
  }
}

TEST(PackUnitLayer, EveryByteOfEverySectionIsWritten) {
  Packed packed("t1 k1 e3 h72 i40 nvfp4 bf16 silu bias");
  const auto unwritten = static_cast<std::int64_t>(std::count(packed.written.begin(), packed.written.end(), false));
  const CudaUnitLayout& layout = packed.layer.layout;
  const std::int64_t sections = 3 * (layout.gate_up.expert_bytes() + layout.down.expert_bytes()) + 3 * (2 + 1) * 4 +
                                3 * (80 + 72) * 4;
  EXPECT_EQ(layout.total_bytes - unwritten, sections);
}

TEST(PackUnitLayer, HostMemoryIsThatOfOneExpert) {
  Packed packed("t1 k1 e64 h64 i32 mxfp4 bf16 silu");
  EXPECT_LT(packed.staging.size() * 32, packed.bytes.size());
}

TEST(UnitParams, PointAtTheirSections) {
  const Caps caps = support::caps_of("t1 k1 e4 h72 i40 nvfp4 bf16 silu bias");
  const CudaUnitMatrix matrix = cuda_unit_layout(caps).gate_up;
  const auto* base = reinterpret_cast<const std::byte*>(std::uintptr_t{0x100000});
  const kernels::UnitMatrix params = unit_params(matrix, kernels::ScaleType::f16, base);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(params.units), 0x100000u + matrix.units);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(params.global), 0x100000u + matrix.global);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(params.bias), 0x100000u + matrix.bias);
  EXPECT_EQ(params.expert_bytes, 5 * 2 * 576);
  EXPECT_EQ(params.row_tiles, 5);
  EXPECT_EQ(params.depth_blocks, 2);
  EXPECT_EQ(params.bias_expert_floats, 80);
  EXPECT_EQ(params.global_expert_floats, 2);
  EXPECT_EQ(params.scale_type, static_cast<int>(kernels::ScaleType::f16));
}

}  // namespace
}  // namespace fourfold::cuda
