// Where the GPU's packed weights lie: sections that are aligned, apart, and as long as their tensors.
#include "plan/cuda_weight_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "fourfold/error.h"
#include "random_caps.h"

namespace fourfold {
namespace {

TEST(CudaWeightLayout, AKnownLayer) {
  const Caps caps = parse_problem("t1 k1 e3 h64 i24 nvfp4 bf16 silu bias").caps;
  const CudaWeightLayout layout = cuda_weight_layout(caps);
  EXPECT_EQ(layout.gate_up.rows, 48);
  EXPECT_EQ(layout.gate_up.k, 64);
  EXPECT_EQ(layout.gate_up.groups, 4);
  EXPECT_EQ(layout.gate_up.parts, 2);
  EXPECT_EQ(layout.gate_up.codes, 0);
  EXPECT_EQ(layout.gate_up.scales, 4608);  // 3 * 48 * 32 codes
  EXPECT_EQ(layout.gate_up.zeros, -1);
  EXPECT_EQ(layout.gate_up.global, 5376);  // 3 * 48 * 4 = 576, padded to 768
  EXPECT_EQ(layout.gate_up.bias, 5632);    // 24 bytes, padded
  EXPECT_EQ(layout.down.codes, 6400);      // 576 bytes of bias, padded
  EXPECT_EQ(layout.down.rows, 64);
  EXPECT_EQ(layout.down.groups, 2);  // 16 and a tail of 8
  EXPECT_EQ(layout.down.parts, 1);
  EXPECT_EQ(layout.down.scales, 8704);  // 3 * 64 * 12 = 2304 codes
  EXPECT_EQ(layout.down.global, 9216);  // 384 bytes, padded
  EXPECT_EQ(layout.down.bias, 9472);
  EXPECT_EQ(layout.total_bytes, 10240);
}

TEST(CudaWeightLayout, Int4ScalesHaveTheBytesThatPackingNames) {
  const Caps caps = parse_problem("t1 k1 e1 h512 i256 int4 grow zp").caps;
  const CudaWeightLayout layout = cuda_weight_layout(caps, {4, 2});
  EXPECT_EQ(layout.gate_up.group_size, 512);
  EXPECT_EQ(layout.down.group_size, 256);
  EXPECT_EQ(layout.gate_up.scales_row_bytes(), 4);
  EXPECT_EQ(layout.down.scales_row_bytes(), 2);
  EXPECT_EQ(layout.gate_up.global, -1);
  EXPECT_EQ(layout.gate_up.zeros, layout.gate_up.scales + 512 * 4);
  EXPECT_EQ(layout.total_bytes - cuda_weight_layout(caps).total_bytes, 512 * 2);
}

TEST(CudaWeightLayout, SectionsAreAlignedAndApart) {
  std::mt19937_64 random(21);
  std::int64_t compared = 0;
  for (int round = 0; round < 2000; ++round) {
    const Caps caps = random_caps(random);
    const CudaWeightLayout layout = cuda_weight_layout(caps);
    std::vector<std::pair<std::int64_t, std::int64_t>> sections;  // begin, end
    for (const CudaMatrixLayout& m : {layout.gate_up, layout.down}) {
      const std::int64_t rows = caps.experts * m.rows;
      const auto add = [&](std::int64_t begin, std::int64_t bytes) {
        if (begin >= 0) sections.emplace_back(begin, begin + bytes);
      };
      add(m.codes, rows * m.codes_row_bytes());
      add(m.scales, rows * m.scales_row_bytes());
      add(m.zeros, rows * m.groups);
      add(m.global, caps.experts * m.parts * 4);
      add(m.bias, rows * 4);
      EXPECT_EQ(m.zeros >= 0, caps.format.zero_points);
      EXPECT_EQ(m.global >= 0, caps.format.format == WeightFormat::nvfp4);
    }
    std::sort(sections.begin(), sections.end());
    for (std::size_t i = 0; i < sections.size(); ++i) {
      ASSERT_EQ(sections[i].first % 256, 0);
      ASSERT_LE(sections[i].second, i + 1 < sections.size() ? sections[i + 1].first : layout.total_bytes);
      ++compared;
    }
  }
  EXPECT_GT(compared, 8000);
}

TEST(CudaWeightLayout, HugeSizesAreRefusedNotWrapped) {
  Caps caps = parse_problem("t1 k1 e4096 h64 i64").caps;
  caps.hidden = std::int64_t{1} << 32;
  caps.intermediate = std::int64_t{1} << 32;
  EXPECT_THROW(cuda_weight_layout(caps), Error);
}

}  // namespace
}  // namespace fourfold
