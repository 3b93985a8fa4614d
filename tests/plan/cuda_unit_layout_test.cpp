// Sizes and places of the units of a layer.
#include "plan/cuda_unit_layout.h"

#include <gtest/gtest.h>

#include "fourfold/error.h"

namespace fourfold {
namespace {

CudaUnitLayout layout_of(std::string_view problem, CudaScaleBytes scales = {}) {
  return cuda_unit_layout(parse_problem(problem).caps, scales);
}

TEST(CudaUnitLayout, UnitsHaveTheBytesOfTheirFormat) {
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 nvfp4").gate_up.unit_bytes, 512 + 64);
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 mxfp4").gate_up.unit_bytes, 512 + 32);
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 int4 g128").gate_up.unit_bytes, 512 + 32);
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 int4 g32 zp").gate_up.unit_bytes, 512 + 32 * 3);
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 int4 g16", {4, 2}).gate_up.unit_bytes, 512 + 64 * 4);
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 int4 g96").gate_up.scale_span, 32);
  EXPECT_EQ(layout_of("t1 k1 e2 h64 i16 int4 grow").gate_up.scale_span, 64);
}

TEST(CudaUnitLayout, TilesCoverEveryRowAndPosition) {
  const CudaUnitLayout layout = layout_of("t1 k1 e3 h72 i40 nvfp4");
  EXPECT_EQ(layout.gate_up.row_tiles, 5);  // 8 gate and 8 up rows each
  EXPECT_EQ(layout.gate_up.depth_blocks, 2);
  EXPECT_EQ(layout.down.row_tiles, 5);  // the last one half empty
  EXPECT_EQ(layout.down.depth_blocks, 1);
  EXPECT_EQ(layout_of("t1 k1 e3 h72 i40 nvfp4 relu2").gate_up.row_tiles, 3);
}

TEST(CudaUnitLayout, SectionsFollowEachOtherAtMultiplesOf256) {
  const CudaUnitLayout layout = layout_of("t1 k1 e3 h72 i40 nvfp4 silu bias");
  std::int64_t end = 0;
  for (const auto& [offset, bytes] : {std::pair(layout.gate_up.units, 3 * layout.gate_up.expert_bytes()),
                                      {layout.gate_up.global, std::int64_t{3 * 2 * 4}},
                                      {layout.gate_up.bias, std::int64_t{3 * 80 * 4}},
                                      {layout.down.units, 3 * layout.down.expert_bytes()},
                                      {layout.down.global, std::int64_t{3 * 4}},
                                      {layout.down.bias, std::int64_t{3 * 72 * 4}}}) {
    EXPECT_EQ(offset % 256, 0);
    EXPECT_GE(offset, end);
    EXPECT_LT(offset - end, 256);
    end = offset + bytes;
  }
  EXPECT_EQ(layout.total_bytes, (end + 255) / 256 * 256);
  EXPECT_EQ(layout_of("t1 k1 e3 h72 i40 mxfp4").gate_up.global, -1);
  EXPECT_EQ(layout_of("t1 k1 e3 h72 i40 mxfp4").gate_up.bias, -1);
}

TEST(CudaUnitLayout, SizesBeyond63BitsAreRefused) {
  Caps caps = parse_problem("t1 k1 e4096 h64 i16 nvfp4").caps;
  caps.hidden = caps.intermediate = std::int64_t{1} << 30;
  EXPECT_THROW(cuda_unit_layout(caps), Error);
}

}  // namespace
}  // namespace fourfold
