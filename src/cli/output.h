// What every verb prints with: stdout with its failures noticed, one JSON object, aligned tables, sizes and rates.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::cli {

/// Keeps the order in which keys were written.
using Json = nlohmann::ordered_json;

/// Writes and flushes. False when the reader of the pipe has gone (nothing more will arrive; not an error).
/// Throws bad_input when stdout cannot take the bytes for another reason, a full disk for instance.
bool write_stdout(std::string_view text);

/// Writes `value` as one indented JSON object and a newline. Bytes that are not UTF-8 become U+FFFD; NaN is null.
void print_json(const Json& value);

/// "17 bytes", "1.50 KiB", "26.1 MiB".
std::string format_bytes(std::uint64_t bytes);
/// With thousands separators: "1,234,567".
std::string format_count(std::int64_t count);
/// "26.1 MiB/s".
std::string format_rate(double bytes_per_second);
/// "0.42 s", "3 min 05 s".
std::string format_duration(double seconds);

/// `text` in bold and cyan when stdout is a terminal.
std::string heading(const std::string& text);
/// `text` in green (better) or red (worse) when stdout is a terminal.
std::string marked(const std::string& text, bool better);

/// Control characters but line ends as '?': what a file or argument says must not steer a terminal.
std::string without_controls(std::string text);

/// Text in aligned columns, two spaces apart and indented by two.
class Table {
 public:
  /// A heading that starts with '>' is right-aligned (the mark is not printed).
  explicit Table(std::vector<std::string> headings);
  /// As many cells as headings.
  void add(std::vector<std::string> cells);
  std::string text() const;
  bool empty() const noexcept { return rows_.empty(); }

 private:
  std::vector<bool> right_;
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fourfold::cli
