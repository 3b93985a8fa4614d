// Text that a user hands over: whole files or stdin, checked to be UTF-8 (RFC 3629), never repaired.
#include "text_input.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char block[1 << 16];
  while (true) {
    const std::size_t got = std::fread(block, 1, sizeof block, file);
    text.append(block, got);
    if (text.size() > kMaxTextBytes)
      throw Error(ErrorCode::bad_input,
                  fmt::format("{}: more than {} bytes; give a shorter text", name, kMaxTextBytes));
    if (got < sizeof block) break;
  }
  if (std::ferror(file) != 0)
    throw Error(ErrorCode::bad_input, fmt::format("{}: {} after {} bytes; give a readable text file", name,
                                                  std::strerror(errno), text.size()));
  return text;
}

}  // namespace

std::optional<std::size_t> first_malformed_utf8(std::string_view text) noexcept {
  // RFC 3629, section 4: the second byte's range depends on the first, later ones are 80..BF.
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                               : lead >= 0xe0 && lead <= 0xef ? 3
                               : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                              : 0;
    if (length == 0 || i + length > text.size()) return i;
    const unsigned char lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i + 1) < lowest || byte(i + 1) > highest) return i;
    for (std::size_t at = i + 2; at < i + length; ++at)
      if ((byte(at) & 0xc0) != 0x80) return i;
    i += length;
  }
  return std::nullopt;
}

void check_utf8(std::string_view text, const std::string& name) {
  if (const auto offset = first_malformed_utf8(text))
    throw Error(ErrorCode::bad_input,
                fmt::format("{}: the text is not UTF-8: byte 0x{:02x} at offset {} of {} starts no valid character; "
                            "convert the text to UTF-8",
                            name, static_cast<unsigned char>(text[*offset]), *offset, text.size()));
}

std::string read_text(const std::string& path) {
  std::string text;
  if (path == "-") {
    text = read_all(stdin, "standard input");
    check_utf8(text, "standard input");
    return text;
  }
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file)
    throw Error(ErrorCode::bad_input, fmt::format("{}: {}; give a readable text file", path, std::strerror(errno)));
  text = read_all(file.get(), path);
  check_utf8(text, path);
  return text;
}

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0)
      throw Error(ErrorCode::usage,
                  fmt::format("--ids: entry {} is '{}'; expected token ids 0 .. {} separated by commas, as in 1,2,3",
                              ids.size(), text.substr(begin, end - begin), std::numeric_limits<std::int32_t>::max()));
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

}  // namespace fourfold::cli
