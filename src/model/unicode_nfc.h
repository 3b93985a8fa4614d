// Unicode Normalization Form C (Unicode Standard Annex 15), which some tokenizers apply to text first.
#pragma once

#include <string>
#include <string_view>

namespace fourfold {

/// NFC of `text`, which is valid UTF-8: canonical decomposition, canonical order, canonical composition, by the tables
/// of Unicode 14.0 (characters assigned later pass unchanged). O(n log n), allocates. Thread-safe.
std::string to_nfc(std::string_view text);

}  // namespace fourfold
