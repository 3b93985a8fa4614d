// Units against a second statement of their layout: for every lane, step and pair, the code that must be there.
#include "cuda/pack_units.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "fourfold/plan.h"

namespace fourfold::cuda {
namespace {

/// Random source matrices of one expert.
struct Source {
  Source(const FormatSpec& format, std::int64_t rows, std::int64_t k, DType scale_dtype, unsigned seed)
      : k_(k), groups(groups_per_row(format, k)), scale_bytes(dtype_bits(scale_dtype) / 8) {
    codes.resize(static_cast<std::size_t>(rows * k / 2));
    scales.resize(static_cast<std::size_t>(rows * groups * scale_bytes));
    zeros.resize(static_cast<std::size_t>(rows * groups));
    for (auto* bytes : {&codes, &scales})
      for (auto& byte : *bytes) byte = static_cast<std::uint8_t>((seed = seed * 1664525u + 1013904223u) >> 24);
    for (auto& zero : zeros) zero = static_cast<std::uint8_t>((seed = seed * 1664525u + 1013904223u) >> 28);
    matrix.codes = codes.data();
    matrix.codes_row_bytes = k / 2;
    matrix.scales = scales.data();
    matrix.scale_dtype = scale_dtype;
    matrix.scales_row_bytes = groups * scale_bytes;
    matrix.zeros = zeros.data();
    matrix.zeros_row_bytes = groups;
  }
  int code(std::int64_t row, std::int64_t position) const {
    const std::uint8_t byte = codes[static_cast<std::size_t>(row * k_ / 2 + position / 2)];
    return position % 2 == 0 ? byte & 15 : byte >> 4;
  }
  const std::uint8_t* scale(std::int64_t row, std::int64_t group) const {
    return scales.data() + (row * groups + group) * scale_bytes;
  }
  std::int64_t k_, groups, scale_bytes;
  std::vector<std::uint8_t> codes, scales, zeros;
  MatrixSource matrix;
};

struct Packed {
  Packed(const std::string& text, bool permute_codes, DType scale_dtype) : permute(permute_codes) {
    caps = parse_problem("t1 k1 e1 " + text).caps;
    const std::int64_t bytes = dtype_bits(scale_dtype) / 8;
    layout = cuda_unit_layout(caps, {bytes, bytes}).gate_up;
    sources.emplace_back(caps.format, caps.intermediate, caps.hidden, scale_dtype, 1u);
    sources.emplace_back(caps.format, caps.intermediate, caps.hidden, scale_dtype, 2u);
    units.assign(static_cast<std::size_t>(layout.expert_bytes()), std::byte{0xa5});
    const MatrixSource parts[] = {sources[0].matrix, sources[1].matrix};
    pack_units(caps.format, layout, permute, std::span(parts, layout.gated ? 2 : 1), units);
  }
  const std::uint8_t* unit(std::int64_t tile, std::int64_t block) const {
    return reinterpret_cast<const std::uint8_t*>(units.data()) +
           (tile * layout.depth_blocks + block) * layout.unit_bytes;
  }
  /// The source of row `index` of a tile; null for a row that pads.
  const Source* source(std::int64_t tile, int index, std::int64_t& row) const {
    row = layout.gated ? 8 * tile + index % 8 : 16 * tile + index;
    return row >= caps.intermediate ? nullptr : &sources[layout.gated && index >= 8 ? 1 : 0];
  }
  /// The code that must be at a lane's pair: the value that decoding must give.
  int wanted(std::int64_t tile, std::int64_t block, int lane, int step, int pair, int half) const {
    const bool nvfp4 = caps.format.format == WeightFormat::nvfp4;
    const bool neighbours = nvfp4 || (caps.format.format == WeightFormat::mxfp4 && permute);
    const int g = lane / 4, t = lane % 4;
    const std::int64_t position =
        64 * block + (neighbours ? 16 * t + 4 * step : 16 * step + 4 * t) + 2 * (pair / 2) + half;
    std::int64_t row = 0;
    const Source* from = source(tile, g + 8 * (pair % 2), row);
    if (from == nullptr || position >= caps.hidden) return 0;
    int code = from->code(row, position);
    if (nvfp4) {
      const int scale = *from->scale(row, position / 16);
      if ((scale & 127) == 127) code = 0;
      if ((scale & 128) != 0) code ^= 8;
    }
    return code;
  }

  bool permute;
  Caps caps;
  CudaUnitMatrix layout;
  std::vector<Source> sources;
  std::vector<std::byte> units;
};

std::uint32_t rotate_left(std::uint32_t x, int by) { return by == 0 ? x : x << by | x >> (32 - by); }

/// Code of pair `pair` (0 .. 7) and half of two words in bf16 bit order, as kernels/device/unpack.cuh takes it: sign at
/// bit 15 and magnitude at bits 8:6 of the half, after the pair's rotation.
int permuted_code(std::uint32_t x, std::uint32_t y, int pair, int half) {
  const std::uint32_t left = 0x06030603u, z = (x & left) | (y << 2 & ~left);
  const std::uint32_t words[8] = {x, x << 4, rotate_left(x, 10), z << 6, y, y << 4, rotate_left(y, 10),
                                  rotate_left(z, 12)};
  const std::uint32_t bits = words[pair] >> (16 * half);
  return static_cast<int>((bits >> 6 & 7) | (bits >> 15 & 1) << 3);
}

int packed_code(const Packed& packed, const std::uint8_t* unit, int lane, int step, int pair, int half) {
  std::uint32_t words[4];
  std::memcpy(words, unit + 16 * lane, 16);
  if (packed.permute) return permuted_code(words[step / 2 * 2], words[step / 2 * 2 + 1], 4 * (step % 2) + pair, half);
  return static_cast<int>(words[step] >> (4 * pair + 16 * half) & 15);
}

void expect_codes(const Packed& packed) {
  std::size_t compared = 0;
  for (std::int64_t tile = 0; tile < packed.layout.row_tiles; ++tile)
    for (std::int64_t block = 0; block < packed.layout.depth_blocks; ++block)
      for (int at = 0; at < 32 * 4 * 4 * 2; ++at) {
        const int lane = at / 32, step = at / 8 % 4, pair = at / 2 % 4, half = at % 2;
        ASSERT_EQ(packed_code(packed, packed.unit(tile, block), lane, step, pair, half),
                  packed.wanted(tile, block, lane, step, pair, half))
            << "tile " << tile << " block " << block << " lane " << lane << " step " << step << " pair " << pair;
        ++compared;
      }
  EXPECT_GT(compared, 0u);
}

void expect_scales(const Packed& packed) {
  const CudaUnitMatrix& m = packed.layout;
  const std::int64_t group = packed.caps.format.group_size == 0 ? m.k : packed.caps.format.group_size;
  const bool nvfp4 = packed.caps.format.format == WeightFormat::nvfp4;
  for (std::int64_t tile = 0; tile < m.row_tiles; ++tile)
    for (std::int64_t block = 0; block < m.depth_blocks; ++block)
      for (int index = 0; index < 16; ++index)
        for (std::int64_t span = 0; span < m.spans(); ++span) {
          const std::uint8_t* scales = packed.unit(tile, block) + kCudaUnitCodeBytes;
          const std::int64_t position = 64 * block + span * m.scale_span;
          std::int64_t row = 0;
          const Source* from = packed.source(tile, index, row);
          const bool pads = from == nullptr || position >= m.k;
          const std::int64_t place = nvfp4 ? 2 * (4 * (index % 8) + span) + index / 8
                                           : index % 8 * 2 * m.spans() + index / 8 * m.spans() + span;
          std::vector<std::uint8_t> wanted(static_cast<std::size_t>(m.scale_bytes), 0);
          if (!pads) std::memcpy(wanted.data(), from->scale(row, position / group), wanted.size());
          if (nvfp4) wanted[0] = (wanted[0] & 127) == 127 ? 255 : wanted[0] & 127;
          ASSERT_EQ(std::memcmp(scales + place * m.scale_bytes, wanted.data(), wanted.size()), 0)
              << "tile " << tile << " block " << block << " row " << index << " span " << span;
          if (!packed.caps.format.zero_points) continue;
          const int zero = pads ? 0 : from->zeros[static_cast<std::size_t>(row * from->groups + position / group)];
          ASSERT_EQ(scales[16 * m.spans() * m.scale_bytes + place], zero);
        }
}

TEST(PackUnits, EveryFormatHasItsCodesAndScalesInPlace) {
  for (const char* sizes : {"h64 i16 ", "h200 i40 ", "h8 i8 ", "h136 i24 "})
    for (const char* activation : {" silu", " relu2"})
      for (bool permute : {false, true}) {
        for (const char* format : {"nvfp4", "mxfp4"}) {
          const Packed packed(sizes + std::string(format) + " bf16" + activation, permute,
                              format == std::string("nvfp4") ? DType::f8_e4m3 : DType::u8);
          expect_codes(packed);
          expect_scales(packed);
        }
        if (permute) continue;
        for (const char* format :
             {"int4 g16", "int4 g32 zp", "int4 g64", "int4 g96 zp", "int4 g128", "int4 g256", "int4 grow zp"})
          for (DType dtype : {DType::bf16, DType::f32}) {
            const Packed packed(sizes + std::string(format) + " bf16" + activation, false, dtype);
            expect_codes(packed);
            expect_scales(packed);
          }
      }
}

TEST(PackUnits, RefusesMemoryOfAnotherSize) {
  Packed packed("h64 i16 mxfp4 bf16 relu2", true, DType::u8);
  const MatrixSource parts[] = {packed.sources[0].matrix};
  EXPECT_THROW(pack_units(packed.caps.format, packed.layout, true, parts, std::span(packed.units).subspan(1)), Error);
}

}  // namespace
}  // namespace fourfold::cuda
