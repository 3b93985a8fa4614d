// Packs experts for the CPU: nibbles into the order of a bf16 dot product's operand, scales and zero points into
// planes of 16 rows, biases to fp32.
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

/// Writable sections of one matrix.
struct Sections {
  std::uint8_t* codes;
  std::uint8_t* scales;
  std::uint8_t* zeros;
  float* bias;
};

struct PanelPacker {
  const MatrixSource& source;
  const CpuMatrixLayout& layout;
  const FormatSpec& spec;
  ScaleKind kind;
  std::int64_t scale_bytes;

  std::uint8_t zero_point(std::int64_t row, std::int64_t group) const {
    if (spec.format != WeightFormat::int4) return 0;  // code 0 is +0
    if (!spec.zero_points) return 8;
    return row < layout.rows ? source.zeros[row * source.zeros_row_bytes + group] : 0;
  }

  void pack_codes(std::uint8_t* out, std::int64_t panel, std::int64_t lane) const {
    const std::int64_t row = panel * kPanelRows + lane;
    const std::int64_t halves = layout.steps * 2;
    for (std::int64_t half = 0; half < halves; ++half) {
      std::uint32_t word;
      if (row < layout.rows && half * 8 < layout.k) {
        std::memcpy(&word, source.codes + row * source.codes_row_bytes + half * 4, sizeof word);
        word = interleave(word);
      } else {
        word = zero_point(row, half / 2 / layout.group_steps) * 0x11111111u;  // a code of value 0, eight times
      }
      std::memcpy(out + half * (kStepBytes / 2) + lane * 4, &word, sizeof word);
    }
  }

  void pack_scale(std::uint8_t* out, std::int64_t row, std::int64_t group) const {
    const bool padding = row >= layout.rows;
    if (kind == ScaleKind::byte) {
      const std::uint8_t none = spec.format == WeightFormat::mxfp4 ? 127 : 0;
      *out = padding ? none : std::to_integer<std::uint8_t>(row_of(source.scales, row, source.scales_row_bytes)[group]);
      return;
    }
    const float value = padding ? 0.0f : scale_of(source, row, group);
    if (kind == ScaleKind::f32) {
      std::memcpy(out, &value, sizeof value);
    } else {
      const std::uint16_t bits = kind == ScaleKind::bf16 ? float_to_bf16(value) : float_to_f16(value);
      std::memcpy(out, &bits, sizeof bits);
    }
  }

  void pack(const Sections& out, std::int64_t panel) const {
    std::uint8_t* const codes = out.codes + panel * layout.steps * kStepBytes;
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
      const std::int64_t row = panel * kPanelRows + lane;
      pack_codes(codes, panel, lane);
      for (std::int64_t group = 0; group < layout.groups; ++group) {
        const std::int64_t entry = (panel * layout.groups + group) * kPanelRows + lane;
        pack_scale(out.scales + entry * scale_bytes, row, group);
        if (out.zeros) out.zeros[entry] = zero_point(row, group);
      }
      if (out.bias)
        out.bias[row] = row < layout.rows
                            ? load_float(row_of(source.bias, row, source.bias_stride_bytes), source.bias_dtype)
                            : 0.0f;
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
  const MatrixSource* const sources[] = {&matrices.up, &matrices.down, &matrices.gate};
  const CpuMatrixLayout* const layouts[] = {&layout_.up, &layout_.down, &layout_.gate};
  PackedMatrix* const packed[] = {&expert.up, &expert.down, &expert.gate};
  const std::size_t count = layout_.gated ? 3 : 2;
  for (std::size_t m = 0; m < count; ++m)
    check(sources[m]->codes && sources[m]->scales && (!spec.zero_points || sources[m]->zeros) &&
              (layouts[m]->bias < 0 || sources[m]->bias),
          ErrorCode::bad_input, "expert {}: {} lacks codes, scales, zero points or bias; the plan's caps ask for them",
          index,
          m == 0   ? "up"
          : m == 1 ? "down"
                   : "gate");
  const ScaleKind kind =
      spec.format == WeightFormat::int4 ? narrowest({sources, count}, {layouts, count}) : ScaleKind::byte;
  expert.format = panel_format(spec, kind);
  std::uint8_t* const base = block_.get() + index * layout_.expert_bytes;
  for (std::size_t m = 0; m < count; ++m) {
    const CpuMatrixLayout& layout = *layouts[m];
    Sections out{base + layout.codes, base + layout.scales, layout.zeros < 0 ? nullptr : base + layout.zeros,
                 layout.bias < 0 ? nullptr : reinterpret_cast<float*>(base + layout.bias)};
    std::int64_t scale_bytes = layout_.scale_bytes;
    if (kind == ScaleKind::f32) {
      scale_bytes = 4;
      const std::int64_t wide = layout.panels * layout.groups * kPanelRows * scale_bytes;
      wide_scales_.push_back(allocate(wide));
      out.scales = wide_scales_.back().get();
    }
    const PanelPacker packer{*sources[m], layout, spec, kind, scale_bytes};
#pragma omp parallel for schedule(static) num_threads(threads) if (layout.panels * layout.steps > 512)
    for (std::int64_t panel = 0; panel < layout.panels; ++panel) packer.pack(out, panel);
    *packed[m] = {out.codes,   out.scales,    out.zeros,    out.bias,      sources[m]->global_scale,
                  scale_bytes, layout.panels, layout.steps, layout.groups, layout.group_steps};
  }
}

}  // namespace fourfold::cpu
