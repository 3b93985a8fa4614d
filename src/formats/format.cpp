// Names and allowed parameters of the weight formats.
#include "formats/format.h"

#include <algorithm>
#include <array>

#include "core/check.h"

namespace fourfold {
namespace {

constexpr std::array<std::int64_t, 7> kInt4Groups{0, 16, 32, 64, 96, 128, 256};

}  // namespace

std::string_view weight_format_name(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::nvfp4:
      return "nvfp4";
    case WeightFormat::mxfp4:
      return "mxfp4";
    case WeightFormat::int4:
      return "int4";
    case WeightFormat::exl3:
      return "exl3";
  }
  return "unknown";
}

std::int64_t group_length(const FormatSpec& spec, std::int64_t k) noexcept {
  return spec.group_size > 0 ? spec.group_size : k;
}

std::int64_t groups_per_row(const FormatSpec& spec, std::int64_t k) noexcept {
  return k <= 0 ? 0 : ceil_div(k, group_length(spec, k));
}

std::string format_refusal(const FormatSpec& spec) {
  if (spec.format != WeightFormat::exl3 && spec.bits != 4)
    return fmt::format("{} has codes of 4 bits, not {}; only exl3 has others", weight_format_name(spec.format),
                       spec.bits);
  switch (spec.format) {
    case WeightFormat::nvfp4:
    case WeightFormat::mxfp4: {
      const std::int64_t only = spec.format == WeightFormat::nvfp4 ? 16 : 32;
      if (spec.group_size != only)
        return fmt::format("{} has groups of {}, not {}", weight_format_name(spec.format), only, spec.group_size);
      if (spec.zero_points) return fmt::format("{} has no zero points; int4 does", weight_format_name(spec.format));
      return {};
    }
    case WeightFormat::int4:
      if (std::find(kInt4Groups.begin(), kInt4Groups.end(), spec.group_size) == kInt4Groups.end())
        return fmt::format(
            "int4 groups of {} are not supported; allowed: 16, 32, 64, 96, 128, 256 or the whole row (0)",
            spec.group_size);
      return {};
    case WeightFormat::exl3:
      return "exl3 weights are priced, not run: there is no kernel for them yet; use nvfp4, mxfp4 or int4";
  }
  return fmt::format("weight format {} is unknown; allowed: nvfp4, mxfp4, int4", static_cast<int>(spec.format));
}

void check_format(const FormatSpec& spec) {
  const std::string reason = format_refusal(spec);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
}

}  // namespace fourfold
