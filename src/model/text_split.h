// Cutting text into the pieces that byte-pair merging may not cross, by a regular expression (PCRE2).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

/// A stretch of text. Opaque pieces are bytes that are no valid UTF-8: no pattern looks at them.
struct TextPiece {
  std::string_view text;
  bool opaque = false;
};

/// Cuts `text` into maximal valid UTF-8 stretches and single invalid bytes (opaque), appended to `out`. Surrogates,
/// overlong forms and values above U+10FFFF are invalid. Pure.
void split_valid_utf8(std::string_view text, std::vector<TextPiece>& out);

/// A compiled pattern with the "Isolated" behaviour: every match and every stretch between matches is a piece of its
/// own, empty ones left out. Immutable, thread-safe.
class PatternSplitter {
 public:
  /// `literal`: the pattern is plain text. `where` names the pattern in messages. Unicode semantics throughout
  /// (PCRE2_UTF and PCRE2_UCP). Throws bad_input when it does not compile.
  PatternSplitter(const std::string& pattern, bool literal, const std::string& where);
  ~PatternSplitter();
  PatternSplitter(const PatternSplitter&) = delete;
  PatternSplitter& operator=(const PatternSplitter&) = delete;

  /// Appends the pieces of `text` (valid UTF-8) to `out`; they view into `text`. Allocates its own match state, so
  /// any number of threads may call. Throws bad_input when matching passes PCRE2's step or stack limit.
  void split(std::string_view text, std::vector<TextPiece>& out) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string where_;
};

}  // namespace fourfold
