// A lane of the 16-row operand holds rows g and g + 8 of a unit; two neighbouring positions of a row are one byte of
// the source, so packing moves bytes: table look-ups where bits are permuted, shifts elsewhere.
#include "cuda/pack_units.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "core/check.h"

namespace fourfold::cuda {
namespace {

constexpr int kLanes = 32;
constexpr std::uint8_t kNanScale = 0x7f, kSign = 0x80, kBothSigns = 0x88;

/// Where bit `bit` of the code in half `half` of pair `pair` (0 .. 7) of two words goes: what e2m1_pairs_bf16 of
/// kernels/device/unpack.cuh takes apart. Returns 32 * word + bit.
constexpr int permuted_bit(int pair, int half, int bit) {
  constexpr int kRotation[4] = {0, 4, 10, 12};
  constexpr std::uint32_t kLeft = 0x06030603u;  // bits of a word that pairs 0, 1 and 2 leave over
  const int column = pair % 4;
  const int rotation = pair == 3 ? 6 : kRotation[column];
  const int wanted = 16 * half + (bit == 3 ? 15 : 6 + bit);
  const int from = (wanted - rotation + 32) % 32;
  if (column < 3) return 32 * (pair / 4) + from;
  return (kLeft >> from & 1) != 0 ? from : 32 + (from + 30) % 32;
}

/// By pair and source byte (low nibble is the first position): both words of the two that share their bits.
using PairTable = std::array<std::array<std::uint64_t, 256>, 8>;

const PairTable& pair_table() {
  static const PairTable table = [] {
    PairTable made{};
    for (int pair = 0; pair < 8; ++pair)
      for (int byte = 0; byte < 256; ++byte)
        for (int half = 0; half < 2; ++half)
          for (int bit = 0; bit < 4; ++bit)
            if ((byte >> (4 * half + bit) & 1) != 0)
              made[static_cast<std::size_t>(pair)][static_cast<std::size_t>(byte)] |=
                  std::uint64_t{1} << permuted_bit(pair, half, bit);
    return made;
  }();
  return table;
}

/// One row of a unit: where its source is, or that it pads.
struct UnitRow {
  const MatrixSource* source = nullptr;  // null: behind the last row
  std::int64_t row = 0;
};

UnitRow unit_row(const CudaUnitMatrix& matrix, std::span<const MatrixSource> parts, std::int64_t tile, int index) {
  if (matrix.gated) return {&parts[index < 8 ? 0 : 1], 8 * tile + index % 8};
  const std::int64_t row = kCudaUnitRows * tile + index;
  return row < matrix.rows ? UnitRow{&parts[0], row} : UnitRow{};
}

/// The 32 source bytes of a unit's row, zeros behind the last position. nvfp4 scales bring their sign to the codes, and
/// a NaN scale takes its codes away: infinity or NaN times zero is NaN.
void read_codes(const FormatSpec& format, const CudaUnitMatrix& matrix, const UnitRow& from, std::int64_t block,
                std::array<std::uint8_t, kCudaUnitDepth / 2>& bytes) {
  bytes.fill(0);
  if (from.source == nullptr) return;
  const std::int64_t begin = block * kCudaUnitDepth;
  const std::int64_t count = std::min(kCudaUnitDepth, matrix.k - begin);
  std::memcpy(bytes.data(), from.source->codes + from.row * from.source->codes_row_bytes + begin / 2,
              static_cast<std::size_t>(count / 2));
  if (format.format != WeightFormat::nvfp4) return;
  const auto* scales = static_cast<const std::uint8_t*>(from.source->scales) +
                       from.row * from.source->scales_row_bytes + begin / format.group_size;
  for (std::int64_t byte = 0; byte < count / 2; ++byte) {
    const std::uint8_t scale = scales[2 * byte / format.group_size];
    if ((scale & kNanScale) == kNanScale) bytes[static_cast<std::size_t>(byte)] = 0;
    if ((scale & kSign) != 0) bytes[static_cast<std::size_t>(byte)] ^= kBothSigns;
  }
}

/// Codes of a unit in fragment order: 16 bytes a lane.
void put_codes(const FormatSpec& format, bool permute,
               const std::array<std::array<std::uint8_t, kCudaUnitDepth / 2>, kCudaUnitRows>& rows, std::byte* unit) {
  const bool e2m1 = format.format != WeightFormat::int4;
  // Where scales go into the operand, a lane holds 16 neighbouring positions of a row (kernels/device/unpack.cuh).
  const bool neighbours = format.format == WeightFormat::nvfp4 || (format.format == WeightFormat::mxfp4 && permute);
  const PairTable& table = pair_table();
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    std::array<std::uint32_t, 4> words{};
    for (int step = 0; step < 4; ++step)
      for (int pair = 0; pair < 4; ++pair) {
        const int position = (neighbours ? 16 * t + 4 * step : 16 * step + 4 * t) + 2 * (pair / 2);
        const auto& row = rows[static_cast<std::size_t>(g + 8 * (pair % 2))];
        const std::uint8_t byte = row[static_cast<std::size_t>(position / 2)];
        if (e2m1 && permute) {
          const std::uint64_t bits = table[static_cast<std::size_t>(4 * (step % 2) + pair)][byte];
          words[static_cast<std::size_t>(step / 2 * 2)] |= static_cast<std::uint32_t>(bits);
          words[static_cast<std::size_t>(step / 2 * 2 + 1)] |= static_cast<std::uint32_t>(bits >> 32);
        } else {
          words[static_cast<std::size_t>(step)] |=
              (static_cast<std::uint32_t>(byte & 15) | static_cast<std::uint32_t>(byte >> 4) << 16) << (4 * pair);
        }
      }
    std::memcpy(unit + 16 * lane, words.data(), 16);
  }
}

/// Scales and zero points of one row of a unit.
void put_scales(const FormatSpec& format, const CudaUnitMatrix& matrix, const UnitRow& from, std::int64_t block,
                int index, std::byte* unit) {
  if (from.source == nullptr) return;
  const std::int64_t spans = matrix.spans(), bytes = matrix.scale_bytes;
  const std::int64_t group = format.group_size == 0 ? matrix.k : format.group_size;
  std::byte* const scales = unit + kCudaUnitCodeBytes;
  for (std::int64_t span = 0; span < spans; ++span) {
    const std::int64_t position = block * kCudaUnitDepth + span * matrix.scale_span;
    if (position >= matrix.k) return;
    const std::byte* scale = static_cast<const std::byte*>(from.source->scales) +
                             from.row * from.source->scales_row_bytes + position / group * bytes;
    if (format.format == WeightFormat::nvfp4) {
      const auto bits = static_cast<std::uint8_t>(*scale);
      const bool nan = (bits & kNanScale) == kNanScale;
      scales[2 * (4 * (index % 8) + span) + index / 8] = static_cast<std::byte>(nan ? 0xff : bits & kNanScale);
      continue;
    }
    const std::int64_t place = index % 8 * 2 * spans + index / 8 * spans + span;
    std::memcpy(scales + place * bytes, scale, static_cast<std::size_t>(bytes));
    if (format.zero_points)
      scales[kCudaUnitRows * spans * bytes + place] = static_cast<std::byte>(
          from.source->zeros[from.row * from.source->zeros_row_bytes + position / group]);
  }
}

}  // namespace

void pack_units(const FormatSpec& format, const CudaUnitMatrix& matrix, bool permute,
                std::span<const MatrixSource> parts, std::span<std::byte> units) {
  check(static_cast<std::int64_t>(units.size()) == matrix.expert_bytes(), ErrorCode::internal,
        "pack_units: {} bytes given, {} needed", units.size(), matrix.expert_bytes());
#pragma omp parallel for schedule(static)
  for (std::int64_t tile = 0; tile < matrix.row_tiles; ++tile) {
    std::array<std::array<std::uint8_t, kCudaUnitDepth / 2>, kCudaUnitRows> rows;
    for (std::int64_t block = 0; block < matrix.depth_blocks; ++block) {
      std::byte* const unit = units.data() + (tile * matrix.depth_blocks + block) * matrix.unit_bytes;
      std::memset(unit + kCudaUnitCodeBytes, 0, static_cast<std::size_t>(matrix.unit_bytes - kCudaUnitCodeBytes));
      for (int index = 0; index < kCudaUnitRows; ++index) {
        const UnitRow from = unit_row(matrix, parts, tile, index);
        read_codes(format, matrix, from, block, rows[static_cast<std::size_t>(index)]);
        put_scales(format, matrix, from, block, index, unit);
      }
      put_codes(format, permute, rows, unit);
    }
  }
}

}  // namespace fourfold::cuda
