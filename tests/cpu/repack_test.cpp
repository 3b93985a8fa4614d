// Packing loses nothing: every code, scale and zero point is read back from the layout's own description.
#include "cpu/repack.h"

#include <gtest/gtest.h>

#include "core/float16.h"
#include "fourfold/error.h"
#include "packed_matrix.h"

namespace fourfold::cpu {
namespace {

using test::FormatCase;
using test::PackedUp;
using test::SourceMatrix;

/// The panel of a row, of a matrix without a gate.
TileSource tile_of(const PackedMatrix& matrix, std::int64_t row) {
  return matrix.tile(row / 64, static_cast<int>(row % 64 / 16));
}
const std::uint8_t* packed_scale_at(const PackedMatrix& matrix, std::int64_t row, std::int64_t group) {
  const TileSource tile = tile_of(matrix, row);
  return tile.scales + group * tile.scale_row_bytes + row % 16 * matrix.scale_bytes;
}
int packed_zero(const PackedMatrix& matrix, std::int64_t row, std::int64_t group) {
  const TileSource tile = tile_of(matrix, row);
  return tile.zeros[group * tile.record_bytes + row % 16];
}

/// The code at (row, column): bit positions as plan/cpu_weight_layout.h describes them.
int packed_code(const PackedMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t step = column / 16, group = step / matrix.layout.group_steps;
  const std::uint8_t* half = tile_of(matrix, row).codes + group * matrix.layout.record_bytes +
                             step % matrix.layout.group_steps * 512 + column % 16 / 8 * 64;
  std::uint32_t word;
  std::memcpy(&word, half + row % 16 * 4, 4);
  const auto position = column % 8;
  return static_cast<int>(word >> (position % 2 * 16 + position / 2 * 4) & 15u);
}

double packed_scale(const PackedMatrix& matrix, PanelFormat format, std::int64_t row, std::int64_t group) {
  const std::uint8_t* at = packed_scale_at(matrix, row, group);
  if (matrix.scale_bytes == 4) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at, 2);
  const bool f16 = format == PanelFormat::int4_f16 || format == PanelFormat::int4_zeros_f16;
  return f16 ? f16_to_float(half) : bf16_to_float(half);
}

TEST(Repack, EveryFormatReadsBackAsItWas) {
  std::int64_t codes = 0, formats = 0;
  for (const FormatCase& format : test::format_cases()) {
    SCOPED_TRACE(format.name);
    const PackedUp packed(format, 40, 328, 7);  // both with a tail: 2.5 panels, 20.5 steps
    const PackedMatrix& matrix = packed.expert().gate_up;
    for (std::int64_t row = 0; row < packed.up.rows; ++row)
      for (std::int64_t column = 0; column < packed.up.k; ++column, ++codes)
        ASSERT_EQ(packed_code(matrix, row, column), packed.up.code(row, column)) << row << ", " << column;
    for (std::int64_t row = 0; row < packed.up.rows; ++row)
      for (std::int64_t group = 0; group < packed.up.groups; ++group) {
        if (matrix.scale_bytes == 1) {
          ASSERT_EQ(*packed_scale_at(matrix, row, group),
                    packed.up.scales[static_cast<std::size_t>(row * packed.up.groups + group)]);
        } else {
          ASSERT_EQ(packed_scale(matrix, packed.expert().format, row, group), packed.up.scale(row, group));
        }
        if (format.spec.zero_points) {
          ASSERT_EQ(packed_zero(matrix, row, group),
                    packed.up.zeros[static_cast<std::size_t>(row * packed.up.groups + group)]);
        }
      }
    ++formats;
  }
  EXPECT_EQ(formats, 44);
  EXPECT_EQ(codes, 44 * 40 * 328);
}

TEST(Repack, PaddedPositionsHaveTheValueZero) {
  for (const FormatCase& format : test::format_cases()) {
    SCOPED_TRACE(format.name);
    const PackedUp packed(format, 24, 40, 9);  // 40 padded rows, 8 padded columns
    const PackedMatrix& matrix = packed.expert().gate_up;
    for (std::int64_t row = 0; row < 64; ++row)
      for (std::int64_t column = 0; column < 48; ++column) {
        if (row < 24 && column < 40) continue;
        const std::int64_t group = format.spec.group_size == 0 ? 0 : column / format.spec.group_size;
        const int zero = format.spec.format != WeightFormat::int4 ? 0
                         : format.spec.zero_points                ? packed_zero(matrix, row, group)
                                                                  : 8;
        ASSERT_EQ(packed_code(matrix, row, column), zero) << row << ", " << column;
      }
  }
}

TEST(Repack, BytesAreWhatThePlanSays) {
  for (const FormatCase& format : test::format_cases()) {
    const PackedUp packed(format, 40, 328, 7);
    const auto planned = static_cast<std::uint64_t>(cpu_weight_layout(test::caps_of(format.spec, 328, 40)).total_bytes);
    if (packed.expert().gate_up.scale_bytes <= 2)
      EXPECT_EQ(packed.packed->bytes(), planned) << format.name;
    else
      EXPECT_GT(packed.packed->bytes(), planned) << format.name;
  }
}

TEST(Repack, WideScalesThatSixteenBitsHoldAreKeptInSixteen) {
  const FormatCase format{"int4", FormatSpec::int4(32), DType::f32};
  SourceMatrix up(format, 16, 32, 1), down(format, 32, 16, 2);
  const auto fill = [](SourceMatrix& matrix, float value) {
    for (std::size_t i = 0; i < matrix.scales.size(); i += 4) std::memcpy(&matrix.scales[i], &value, 4);
  };
  const auto format_with = [&](float value) {
    fill(up, value);
    fill(down, value);
    test::OneExpert source(up, down);
    return PackedCpuExperts(test::caps_of(format.spec, 32, 16), source, 1).expert(0).format;
  };
  EXPECT_EQ(format_with(0x1.02p-100f), PanelFormat::int4_bf16);
  EXPECT_EQ(format_with(0x1.004p-3f), PanelFormat::int4_f16);
  EXPECT_EQ(format_with(0x1.000002p-3f), PanelFormat::int4_f32);
}

TEST(Repack, MissingTensorsAreRefused) {
  const FormatCase format{"nvfp4", FormatSpec::nvfp4(), DType::f8_e4m3};
  const SourceMatrix up(format, 16, 32, 1), down(format, 32, 16, 2);
  struct NoScales final : ExpertSource {
    const SourceMatrix &up, &down;
    NoScales(const SourceMatrix& u, const SourceMatrix& d) : up(u), down(d) {}
    ExpertMatrices expert(std::int64_t) override {
      ExpertMatrices matrices{{}, up.source(), down.source()};
      matrices.down.scales = nullptr;
      return matrices;
    }
  } source(up, down);
  try {
    (void)PackedCpuExperts(test::caps_of(format.spec, 32, 16), source, 1);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("down"), std::string::npos);
  }
}

}  // namespace
}  // namespace fourfold::cpu
