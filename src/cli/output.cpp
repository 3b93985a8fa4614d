// What every verb prints with: stdout with its failures noticed, one JSON object, aligned tables, sizes and rates.
#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

// Code points of a UTF-8 text: bytes that do not continue a character. Good enough to align names.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

bool write_stdout(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return true;
  const int reason = errno;
  if (reason == EPIPE) return false;
  throw Error(ErrorCode::bad_input, fmt::format("standard output: {} while writing {} bytes; free space there or "
                                                "write somewhere else",
                                                std::strerror(reason), text.size()));
}

void print_json(const Json& value) { write_stdout(value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + 3;) {
    place -= 3;
    digits.insert(place, 1, ',');
  }
  return digits;
}

std::string format_rate(double bytes_per_second) {
  if (!(bytes_per_second > 0) || !std::isfinite(bytes_per_second)) return "-";
  return format_bytes(static_cast<std::uint64_t>(bytes_per_second)) + "/s";
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 10) return fmt::format("{:.2f} s", seconds);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string heading(const std::string& text) { return isatty(1) ? "\x1b[1;36m" + text + "\x1b[0m" : text; }

std::string marked(const std::string& text, bool better) {
  return isatty(1) ? (better ? "\x1b[32m" : "\x1b[31m") + text + "\x1b[0m" : text;
}

Table::Table(std::vector<std::string> headings) : headings_(std::move(headings)) {
  for (std::string& heading : headings_) {
    right_.push_back(heading.starts_with('>'));
    if (right_.back()) heading.erase(0, 1);
  }
}

std::string without_controls(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) c = '?';
  return text;
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  for (std::string& cell : cells) {
    cell = without_controls(std::move(cell));
    std::replace(cell.begin(), cell.end(), '\n', '?');
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(headings_.size(), 0);
  const auto widen = [&](const std::vector<std::string>& row) {
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], display_width(row[column]));
  };
  widen(headings_);
  for (const auto& row : rows_) widen(row);

  std::string text;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - display_width(row[column]), ' ');
      line += "  ";
      line += right_[column] ? padding + row[column] : row[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  print(headings_);
  for (const auto& row : rows_) print(row);
  return text;
}

}  // namespace fourfold::cli
