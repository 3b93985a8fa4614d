// Text that a user hands over: whole files or stdin, checked to be UTF-8 (RFC 3629), never repaired.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::cli {

/// Offset of the first byte that cannot belong to well-formed UTF-8 (overlong forms, surrogates and code points
/// above U+10FFFF are malformed); nullopt when all is well. Pure.
std::optional<std::size_t> first_malformed_utf8(std::string_view text) noexcept;

/// Throws bad_input naming `name`, the byte and its offset.
void check_utf8(std::string_view text, const std::string& name);

/// The bytes of a file, or of stdin for "-", which must be UTF-8. Throws bad_input naming file and reason.
std::string read_text(const std::string& path);

/// "1,2,3" as token ids. Throws usage naming the piece and its position.
std::vector<std::int32_t> parse_ids(const std::string& text);

}  // namespace fourfold::cli
