// Cuts a stream of bytes into pieces of whole UTF-8 characters. Source: Unicode 15, table 3-7 and section 3.9 (U+FFFD
// substitution of maximal subparts).
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace fourfold {

/// Bytes of a character that is not complete yet are held back; bytes that can never become one are replaced by U+FFFD.
/// Everything handed out is valid UTF-8. Not thread-safe.
class Utf8Stream {
 public:
  explicit Utf8Stream(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {}
  void append(std::string_view bytes);
  /// The end: an incomplete character is replaced.
  void finish();

 private:
  void drain(bool at_end);
  std::function<void(std::string_view)> sink_;
  std::string held_;
};

}  // namespace fourfold
