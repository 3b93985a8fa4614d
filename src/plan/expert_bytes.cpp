// Bytes of a layer's experts as a checkpoint holds them. Sources of the layouts: docs/formats.md; EXL3: tiles of 16 x
// 16 codes, 32 x bits bytes each, and per expert the fp16 rotations of both sides (three of hidden, three of
// intermediate).
#include "core/check.h"
#include "formats/format.h"
#include "fourfold/plan.h"
#include "plan/problem.h"

namespace fourfold {
namespace {

constexpr std::int64_t kTrellisTile = 16;
constexpr std::int64_t kTrellisRotation = 128;  // channels of one Hadamard transform
constexpr const char* kWhat = "bytes of the experts";

std::int64_t exl3_bytes(const Caps& caps) {
  const FormatSpec& format = caps.format;
  check(format.bits >= 2 && format.bits <= 8, ErrorCode::unsupported, "exl3 has codes of 2 .. 8 bits, not {}; use 3",
        format.bits);
  check(format.group_size == FormatSpec::exl3().group_size && !format.zero_points, ErrorCode::unsupported,
        "exl3 has neither groups nor zero points; leave them out");
  check(caps.hidden % kTrellisRotation == 0 && caps.intermediate % kTrellisRotation == 0, ErrorCode::unsupported,
        "exl3 rotates {} channels at a time: hidden = {} and intermediate = {} must be multiples of it; use {} and {}",
        kTrellisRotation, caps.hidden, caps.intermediate, round_up(caps.hidden, kTrellisRotation),
        round_up(caps.intermediate, kTrellisRotation));
  const std::int64_t rows = checked_add(caps.gate_up_rows(), caps.intermediate, kWhat);
  const std::int64_t tiles =
      checked_mul(checked_mul(caps.experts, rows / kTrellisTile, kWhat), caps.hidden / kTrellisTile, kWhat);
  const std::int64_t codes = checked_mul(tiles, kTrellisTile * kTrellisTile * format.bits / 8, kWhat);
  const std::int64_t inputs = caps.activation.gated() ? 2 : 1;  // gate and up are rotated apart
  const std::int64_t rotations =
      checked_mul(caps.experts, ((inputs + 1) * (caps.hidden + caps.intermediate)) * 2, kWhat);
  return checked_add(codes, rotations, kWhat);
}

/// One projection of one expert; `parts` matrices that have a global scale each.
std::int64_t matrix_bytes(const FormatSpec& format, std::int64_t rows, std::int64_t k, std::int64_t parts, bool bias) {
  const std::int64_t groups = rows * groups_per_row(format, k);
  std::int64_t bytes = rows * (k / 2) + groups * (format.format == WeightFormat::int4 ? 2 : 1);
  if (format.zero_points) bytes += ceil_div(groups, 2);
  if (format.format == WeightFormat::nvfp4) bytes += parts * 4;
  return bias ? bytes + rows * 2 : bytes;
}

}  // namespace

std::uint64_t layer_expert_bytes(const Caps& caps) {
  const std::string reason = sizes_refusal(caps);
  check(reason.empty(), ErrorCode::unsupported, "{}", reason);
  if (caps.format.format == WeightFormat::exl3) return static_cast<std::uint64_t>(exl3_bytes(caps));
  check_format(caps.format);
  // Widths are below 2^21, so that one expert stays below 2^44.
  const std::int64_t parts = caps.activation.gated() ? 2 : 1;
  const std::int64_t expert = matrix_bytes(caps.format, caps.gate_up_rows(), caps.hidden, parts, caps.gate_up_bias) +
                              matrix_bytes(caps.format, caps.hidden, caps.intermediate, 1, caps.down_bias);
  return static_cast<std::uint64_t>(checked_mul(caps.experts, expert, kWhat));
}

}  // namespace fourfold
