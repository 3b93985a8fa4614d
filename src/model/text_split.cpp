// PCRE2 behind PatternSplitter: compile once, match with explicit limits, keep no state between calls.
#include "model/text_split.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "core/check.h"

namespace fourfold {
namespace {

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string pcre_message(int code) {
  unsigned char text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

/// Length of the valid UTF-8 sequence at the start of `text`, 0 when there is none (Unicode 15, table 3-7).
std::size_t valid_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto in = [](unsigned value, unsigned low, unsigned high) { return value >= low && value <= high; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (in(first, 0xc2, 0xdf)) return in(byte(1), 0x80, 0xbf) ? 2 : 0;
  if (in(first, 0xe0, 0xef)) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return in(byte(1), low, high) && in(byte(2), 0x80, 0xbf) ? 3 : 0;
  }
  if (in(first, 0xf0, 0xf4)) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return in(byte(1), low, high) && in(byte(2), 0x80, 0xbf) && in(byte(3), 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

void split_valid_utf8(std::string_view text, std::vector<TextPiece>& out) {
  std::size_t start = 0, at = 0;
  while (at < text.size()) {
    const std::size_t length = valid_sequence(text.substr(at));
    if (length > 0) {
      at += length;
      continue;
    }
    if (at > start) out.push_back({text.substr(start, at - start), false});
    out.push_back({text.substr(at, 1), true});
    start = ++at;
  }
  if (at > start) out.push_back({text.substr(start, at - start), false});
}

struct PatternSplitter::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

PatternSplitter::PatternSplitter(const std::string& pattern, bool literal, const std::string& where)
    : compiled_(std::make_unique<Compiled>()), where_(where) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::uint32_t options =
      literal ? (PCRE2_UTF | PCRE2_LITERAL) : (PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, nullptr);
  check(compiled_->code != nullptr, ErrorCode::bad_input, "{}: the pattern does not compile at offset {}: {}", where_,
        offset, pcre_message(error));
  // Where the system forbids executable memory this fails and the interpreter serves the same matches.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

PatternSplitter::~PatternSplitter() = default;

void PatternSplitter::split(std::string_view text, std::vector<TextPiece>& out) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack(pcre2_jit_stack_create(32 * 1024, 8 << 20, nullptr));
  check(data && context && stack, ErrorCode::internal, "{}: no memory for PCRE2's match state", where_);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  // A run of blanks backtracks once per blank, so the step limit grows with the text and only bounds bad patterns.
  const std::uint64_t limit = std::max<std::uint64_t>(10'000'000, 16ull * text.size());
  pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, UINT32_MAX)));

  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t search = 0, piece_start = 0;
  std::size_t last_match_end = std::string_view::npos;
  while (search <= text.size()) {
    const int found =
        pcre2_match(compiled_->code, subject, text.size(), search, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    check(found > 0, ErrorCode::bad_input, "{}: matching stopped at byte {} of {}: {}", where_, search, text.size(),
          pcre_message(found));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = span[0], end = span[1];
    // \K in a lookahead can report an end before the begin, or a begin before the search: such a pattern cuts nothing.
    check(begin <= end && begin >= search, ErrorCode::bad_input, "{}: the pattern moves its match start (\\K)", where_);
    if (begin == end && begin == last_match_end) {
      // An empty match right after a match is none; go on one character later.
      search = end < text.size() ? end + valid_sequence(text.substr(end)) : end + 1;
      continue;
    }
    if (begin > piece_start) out.push_back({text.substr(piece_start, begin - piece_start), false});
    if (end > begin) out.push_back({text.substr(begin, end - begin), false});
    piece_start = search = last_match_end = end;
  }
  if (piece_start < text.size()) out.push_back({text.substr(piece_start), false});
}

}  // namespace fourfold
