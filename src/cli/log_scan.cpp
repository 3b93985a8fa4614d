// Reads a log and says what known lines in it mean.
#include "log_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <vector>

#include "fourfold/error.h"
#include "log_signatures.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kMostShown = 160;     // characters of a line
constexpr std::size_t kMostLines = 20;      // line numbers of a signature
constexpr std::size_t kMostJudged = 65536;  // bytes of a line that are looked at

struct Found {
  const LogSignature* signature = nullptr;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> lines;  // the first ones
  std::string text;                  // of the first
};

struct Scan {
  std::uint64_t lines = 0;
  std::uint64_t ready_line = 0;  // 0: never
  std::vector<Found> found;      // by first occurrence
};

std::string lower(std::string_view text) {
  std::string result(text.substr(0, kMostJudged));
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

bool has_in_order(const std::string& line, const std::vector<std::string_view>& parts) {
  std::size_t at = 0;
  for (const std::string_view part : parts) {
    at = line.find(lower(part), at);
    if (at == std::string::npos) return false;
    at += part.size();
  }
  return true;
}

const LogSignature* signature_of(const std::string& line, bool ready) {
  for (const LogSignature& signature : log_signatures()) {
    if (signature.after_ready && !ready) continue;
    for (const auto& parts : signature.parts)
      if (has_in_order(line, parts)) return &signature;
  }
  return nullptr;
}

/// What a person can read of a line: printable ASCII and UTF-8, cut.
std::string shown(const std::string& line) {
  std::string text = without_controls(line.substr(0, kMostShown));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return line.size() > kMostShown ? text + "..." : text;
}

Scan scan(std::istream& input, std::int64_t from_line) {
  Scan result;
  std::string line;
  while (std::getline(input, line)) {
    ++result.lines;
    const std::string text = lower(line);
    for (const std::string_view ready : ready_lines())
      if (result.ready_line == 0 && text.find(ready) != std::string::npos) result.ready_line = result.lines;
    if (result.lines < static_cast<std::uint64_t>(from_line)) continue;
    const bool ready = result.ready_line > 0 && result.lines > result.ready_line;
    const LogSignature* signature = signature_of(text, ready);
    if (signature == nullptr) continue;
    auto at = std::find_if(result.found.begin(), result.found.end(),
                           [&](const Found& found) { return found.signature == signature; });
    if (at == result.found.end()) {
      result.found.push_back({signature, 0, {}, shown(line)});
      at = result.found.end() - 1;
    }
    ++at->count;
    if (at->lines.size() < kMostLines) at->lines.push_back(result.lines);
  }
  return result;
}

void print_scan_json(const std::string& file, const Scan& result) {
  Json findings = Json::array();
  for (const Found& found : result.found)
    findings.push_back({{"signature", found.signature->name},
                        {"of", found.signature->of},
                        {"count", found.count},
                        {"lines", found.lines},
                        {"text", found.text},
                        {"meaning", found.signature->meaning},
                        {"remedy", found.signature->remedy}});
  print_json({{"file", file},
              {"lines", result.lines},
              {"ready_line", result.ready_line > 0 ? Json(result.ready_line) : Json(nullptr)},
              {"findings", std::move(findings)}});
}

std::string scan_text(const std::string& file, const Scan& result) {
  std::string text = fmt::format("{}: {} lines", file, format_count(static_cast<std::int64_t>(result.lines)));
  text += result.ready_line > 0 ? fmt::format(", ready at line {}\n", result.ready_line) : "\n";
  if (result.found.empty()) text += "no line that is known here\n";
  for (const Found& found : result.found) {
    const LogSignature& signature = *found.signature;
    text += fmt::format("\n{} ({}), {} time{}, first at line {}\n", heading(std::string(signature.name)), signature.of,
                        format_count(static_cast<std::int64_t>(found.count)), found.count == 1 ? "" : "s",
                        found.lines.front());
    text += fmt::format("  > {}\n  means: {}\n  do:    {}\n", found.text, signature.meaning, signature.remedy);
  }
  return text;
}

}  // namespace

int scan_log(const ScanOptions& options) {
  Scan result;
  if (options.file == "-") {
    result = scan(std::cin, options.from_line);
  } else {
    std::ifstream file(options.file);
    // A folder opens, and then gives nothing: peek tells them apart.
    if (!file || (file.peek() == std::ifstream::traits_type::eof() && file.bad()))
      throw Error(ErrorCode::bad_input, fmt::format("--scan {}: the file cannot be read", options.file));
    file.clear();
    result = scan(file, options.from_line);
  }
  if (options.json)
    print_scan_json(options.file, result);
  else
    write_stdout(scan_text(options.file, result));
  return 0;
}

}  // namespace fourfold::cli
