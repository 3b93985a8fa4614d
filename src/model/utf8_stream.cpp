// Cuts a stream of bytes into pieces of whole UTF-8 characters.
#include "model/utf8_stream.h"

#include <cstddef>

namespace fourfold {

namespace {

/// What the bytes at the front of `text` are.
struct Front {
  enum class Kind { character, invalid, incomplete } kind;
  std::size_t length;  // bytes of it
};

Front look(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Front::Kind::character, 1};
  const std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0) return {Front::Kind::invalid, 1};
  // the second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF
  const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Front::Kind::incomplete, i};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xbf)) return {Front::Kind::invalid, i};
  }
  return {Front::Kind::character, length};
}

}  // namespace

void Utf8Stream::drain(bool at_end) {
  std::string out;
  std::size_t at = 0;
  while (at < held_.size()) {
    const Front front = look(std::string_view(held_).substr(at));
    if (front.kind == Front::Kind::incomplete && !at_end) break;
    if (front.kind == Front::Kind::character)
      out.append(held_, at, front.length);
    else
      out += "\xef\xbf\xbd";
    at += front.length;
  }
  held_.erase(0, at);
  if (!out.empty()) sink_(out);
}

void Utf8Stream::append(std::string_view bytes) {
  held_ += bytes;
  drain(false);
}

void Utf8Stream::finish() { drain(true); }

}  // namespace fourfold
