// Sections of one allocation of packed weights, one after another.
#pragma once

#include <cstdint>

#include "core/check.h"

namespace fourfold {

/// Each section starts at a multiple of 256: of a device allocation, and more than the widest load needs.
struct PackedSections {
  std::int64_t end = 0;  ///< bytes so far, a multiple of 256

  /// Offset of a new section. Throws unsupported when the end leaves 63 bits.
  std::int64_t add(std::int64_t bytes) {
    constexpr std::int64_t kAlignment = 256;
    const std::int64_t begin = end;
    const std::int64_t padded = checked_add(bytes, kAlignment - 1, "packed weights");
    end = checked_add(end, padded / kAlignment * kAlignment, "packed weights");
    return begin;
  }
};

}  // namespace fourfold
