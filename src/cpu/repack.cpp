// Packs experts for the CPU: nibbles into the order of a bf16 dot product's operand, each group's scales and zero
// points before its codes, biases to fp32.
#include "cpu/repack.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <span>

#include "core/check.h"
#include "core/float16.h"

namespace fourfold::cpu {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 256;
enum class ScaleKind { byte, bf16, f16, f32 };

float load_float(const void* data, DType dtype) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, data, sizeof bits);
  return dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

const std::byte* row_of(const void* data, std::int64_t row, std::int64_t row_bytes) {
  return static_cast<const std::byte*>(data) + row * row_bytes;
}

float scale_of(const MatrixSource& source, std::int64_t row, std::int64_t group) {
  return load_float(row_of(source.scales, row, source.scales_row_bytes) + group * (dtype_bits(source.scale_dtype) / 8),
                    source.scale_dtype);
}

/// 8 nibbles in position order to even positions in the low half-word, odd ones in the high half-word.
std::uint32_t interleave(std::uint32_t nibbles) {
  const auto compact = [](std::uint32_t spread) {  // nibbles at 0, 8, 16, 24 to 0, 4, 8, 12
    spread = (spread | spread >> 4) & 0x00ff00ffu;
    return (spread | spread >> 8) & 0xffffu;
  };
  return compact(nibbles & 0x0f0f0f0fu) | compact(nibbles >> 4 & 0x0f0f0f0fu) << 16;
}

/// The narrowest exact storage for an expert's int4 scales. NaN counts as held: its payload says nothing.
ScaleKind narrowest(std::span<const MatrixSource* const> sources, std::span<const CpuMatrixLayout* const> layouts) {
  bool fits_bf16 = true, fits_f16 = true;
  for (std::size_t m = 0; m < sources.size(); ++m) {
    if (sources[m]->scale_dtype == DType::bf16 && !fits_f16) continue;
    for (std::int64_t row = 0; row < layouts[m]->rows && (fits_bf16 || fits_f16); ++row)
      for (std::int64_t group = 0; group < layouts[m]->groups; ++group) {
        const float value = scale_of(*sources[m], row, group);
        if (value != value) continue;
        fits_bf16 = fits_bf16 && bf16_to_float(float_to_bf16(value)) == value;
        fits_f16 = fits_f16 && f16_to_float(float_to_f16(value)) == value;
      }
  }
  return fits_bf16 ? ScaleKind::bf16 : fits_f16 ? ScaleKind::f16 : ScaleKind::f32;
}

PanelFormat panel_format(const FormatSpec& spec, ScaleKind kind) {
  if (spec.format == WeightFormat::nvfp4) return PanelFormat::nvfp4;
  if (spec.format == WeightFormat::mxfp4) return PanelFormat::mxfp4;
  const auto base = static_cast<int>(spec.zero_points ? PanelFormat::int4_zeros_bf16 : PanelFormat::int4_bf16);
  return static_cast<PanelFormat>(base + (kind == ScaleKind::bf16 ? 0 : kind == ScaleKind::f16 ? 1 : 2));
}

ScaleKind scale_kind(PanelFormat format) {
  switch (format) {
    case PanelFormat::nvfp4:
    case PanelFormat::mxfp4:
      return ScaleKind::byte;
    case PanelFormat::int4_bf16:
    case PanelFormat::int4_zeros_bf16:
      return ScaleKind::bf16;
    case PanelFormat::int4_f16:
    case PanelFormat::int4_zeros_f16:
      return ScaleKind::f16;
    case PanelFormat::int4_f32:
    case PanelFormat::int4_zeros_f32:
      break;
  }
  return ScaleKind::f32;
}

/// Packs the tiles of one matrix, or of gate and up together.
struct TilePacker {
  const MatrixSource* const* parts;  // [layout.parts]
  const FormatSpec& spec;
  ScaleKind kind;
  PackedMatrix& out;

  /// One of a tile's rows and where it comes from.
  struct Row {
    const MatrixSource& source;
    std::int64_t index;  // beyond the source's rows: padding
    std::int64_t lane;   // 0 .. 63 in the tile
    bool padding;
  };

  Row row_at(std::int64_t tile, std::int64_t lane) const {
    const std::int64_t part_rows = out.layout.part_panels() * kPanelRows;
    const std::int64_t index = tile * part_rows + lane % part_rows;
    return {*parts[lane / part_rows], index, lane, index >= out.layout.rows};
  }

  std::uint8_t zero_point(const Row& row, std::int64_t group) const {
    if (spec.format != WeightFormat::int4) return 0;  // code 0 is +0
    if (!spec.zero_points) return 8;
    return row.padding ? 0 : row.source.zeros[row.index * row.source.zeros_row_bytes + group];
  }

  void pack_codes(std::uint8_t* record, const Row& row) const {
    const CpuMatrixLayout& layout = out.layout;
    for (std::int64_t half = 0; half < layout.steps * 2; ++half) {
      const std::int64_t step = half / 2, group = step / layout.group_steps;
      std::uint32_t word;
      if (!row.padding && half * 8 < layout.k) {
        std::memcpy(&word, row.source.codes + row.index * row.source.codes_row_bytes + half * 4, sizeof word);
        word = interleave(word);
      } else {
        word = zero_point(row, group) * 0x11111111u;  // a code of value 0, eight times
      }
      std::uint8_t* const codes = record + (group + 1) * layout.header_bytes + step * kTileStepBytes;
      std::memcpy(codes + row.lane / kPanelRows * kStepBytes + half % 2 * (kStepBytes / 2) + row.lane % kPanelRows * 4,
                  &word, sizeof word);
    }
  }

  void pack_scale(std::uint8_t* to, const Row& row, std::int64_t group) const {
    if (kind == ScaleKind::byte) {
      const std::uint8_t none = spec.format == WeightFormat::mxfp4 ? 127 : 0;
      const std::byte* const scales = row_of(row.source.scales, row.index, row.source.scales_row_bytes);
      *to = row.padding ? none : std::to_integer<std::uint8_t>(scales[group]);
      return;
    }
    const float value = row.padding ? 0.0f : scale_of(row.source, row.index, group);
    if (kind == ScaleKind::f32) {
      std::memcpy(to, &value, sizeof value);
    } else {
      const std::uint16_t bits = kind == ScaleKind::bf16 ? float_to_bf16(value) : float_to_f16(value);
      std::memcpy(to, &bits, sizeof bits);
    }
  }

  void pack(std::int64_t tile) const {
    const CpuMatrixLayout& layout = out.layout;
    // Every part of the matrix is writable while it is packed.
    auto* const record = const_cast<std::uint8_t*>(out.data) + tile * layout.tile_bytes;
    auto* const scales = const_cast<std::uint8_t*>(out.scales) + tile * out.scale_tile_bytes;
    auto* const bias = const_cast<float*>(out.bias);
    for (std::int64_t lane = 0; lane < kCallColumns; ++lane) {
      const Row row = row_at(tile, lane);
      pack_codes(record, row);
      for (std::int64_t group = 0; group < layout.groups; ++group) {
        pack_scale(scales + group * out.scale_row_bytes + lane * out.scale_bytes, row, group);
        if (out.zeros_offset >= 0)
          record[group * layout.record_bytes + out.zeros_offset + lane] = zero_point(row, group);
      }
      if (bias)
        bias[tile * kCallColumns + lane] =
            row.padding ? 0.0f
                        : load_float(row_of(row.source.bias, row.index, row.source.bias_stride_bytes),
                                     row.source.bias_dtype);
    }
  }
};

}  // namespace

void PackedCpuExperts::Release::operator()(std::uint8_t* data) const noexcept { std::free(data); }

PackedCpuExperts::Block PackedCpuExperts::allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const std::size_t alignment = size >= 4 * kHugePageBytes ? kHugePageBytes : kAlignment;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  bytes_ += size;
  Block block(static_cast<std::uint8_t*>(std::aligned_alloc(alignment, rounded)));
  check(block != nullptr, ErrorCode::unavailable,
        "packed experts: no memory for {} bytes; free some or use fewer layers", bytes);
  if (alignment == kHugePageBytes) (void)madvise(block.get(), rounded, MADV_HUGEPAGE);  // a wish; refusal is harmless
  return block;
}

PackedCpuExperts::PackedCpuExperts(const Caps& caps, ExpertSource& source, int threads)
    : PackedExperts(caps),
      layout_(cpu_weight_layout(caps)),
      block_(allocate(layout_.total_bytes)),
      experts_(static_cast<std::size_t>(caps.experts)) {
  for (std::int64_t index = 0; index < caps.experts; ++index) pack(index, source.expert(index), threads);
}

void PackedCpuExperts::pack(std::int64_t index, const ExpertMatrices& matrices, int threads) {
  const FormatSpec& spec = caps().format;
  PackedExpert& expert = experts_[static_cast<std::size_t>(index)];
  const bool gated = caps().activation.gated();
  const MatrixSource* const sources[] = {&matrices.down, &matrices.up, &matrices.gate};
  const CpuMatrixLayout* const layouts[] = {&layout_.down, &layout_.gate_up, &layout_.gate_up};
  const char* const names[] = {"down", "up", "gate"};
  const std::size_t count = gated ? 3 : 2;
  for (std::size_t m = 0; m < count; ++m)
    check(sources[m]->codes && sources[m]->scales && (!spec.zero_points || sources[m]->zeros) &&
              (layouts[m]->bias < 0 || sources[m]->bias),
          ErrorCode::bad_input, "expert {}: {} lacks codes, scales, zero points or bias; the plan's caps ask for them",
          index, names[m]);
  const ScaleKind kind =
      spec.format == WeightFormat::int4 ? narrowest({sources, count}, {layouts, count}) : ScaleKind::byte;
  expert.format = panel_format(spec, kind);
  const MatrixSource* const first[] = {gated ? &matrices.gate : &matrices.up, &matrices.up};
  pack_matrix(index, layout_.gate_up, first, expert.format, expert.gate_up, threads);
  const MatrixSource* const second[] = {&matrices.down};
  pack_matrix(index, layout_.down, second, expert.format, expert.down, threads);
}

void PackedCpuExperts::pack_matrix(std::int64_t index, const CpuMatrixLayout& layout, const MatrixSource* const* parts,
                                   PanelFormat format, PackedMatrix& out, int threads) {
  const ScaleKind kind = scale_kind(format);
  std::uint8_t* const base = block_.get() + index * layout_.expert_bytes;
  out.layout = layout;
  out.data = base + layout.data;
  out.bias = layout.bias < 0 ? nullptr : reinterpret_cast<float*>(base + layout.bias);
  for (int part = 0; part < layout.parts; ++part) out.globals[part] = parts[part]->global_scale;
  out.scale_bytes = layout_.scale_bytes;
  out.scales = out.data;
  out.scale_row_bytes = layout.record_bytes;
  out.scale_tile_bytes = layout.tile_bytes;
  out.zeros_offset = caps().format.zero_points ? kCallColumns * layout_.scale_bytes : -1;
  if (kind == ScaleKind::f32) {
    out.scale_bytes = 4;
    out.scale_row_bytes = kCallColumns * out.scale_bytes;
    out.scale_tile_bytes = layout.groups * out.scale_row_bytes;
    wide_scales_.push_back(allocate(layout.tiles * out.scale_tile_bytes));
    out.scales = wide_scales_.back().get();
    std::memset(base + layout.data, 0, static_cast<std::size_t>(layout.tiles * layout.tile_bytes));  // unused scales
  }
  const TilePacker packer{parts, caps().format, kind, out};
#pragma omp parallel for schedule(static) num_threads(threads) if (layout.tiles * layout.steps > 128)
  for (std::int64_t tile = 0; tile < layout.tiles; ++tile) packer.pack(tile);
}

}  // namespace fourfold::cpu
