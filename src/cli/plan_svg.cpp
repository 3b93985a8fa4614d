// The arena as a picture: time from left to right, bytes upwards, one box a segment.
#include "plan_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "fourfold/error.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr double kStepWidth = 160, kHeight = 480, kLeft = 90, kTop = 40, kBottom = 40, kLegendLine = 16;
constexpr std::array<const char*, 8> kColours{"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                              "#76b7b2", "#edc948", "#b07aa1", "#9c755f"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string box(const Segment& segment, double unit, std::size_t index) {
  const double x = kLeft + segment.first_step * kStepWidth + 2;
  const double width = (segment.last_step - segment.first_step + 1) * kStepWidth - 4;
  const double height = std::max(1.0, static_cast<double>(segment.bytes) * unit);
  const double y = kTop + kHeight - static_cast<double>(segment.offset_bytes) * unit - height;
  constexpr double kOutlined = 4;  // an outline would hide the colour of what is thinner
  std::string text = fmt::format(
      "  <rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" fill-opacity=\"0.8\"{}>"
      "<title>{}: {} bytes at {}, {}</title></rect>\n",
      x, y, width, height, kColours[index % kColours.size()],
      height >= kOutlined ? " stroke=\"#222\" stroke-width=\"0.5\"" : "", escaped(segment.name), segment.bytes,
      segment.offset_bytes, escaped(segment.formula));
  constexpr double kTextHeight = 14;
  if (height >= kTextHeight)
    text += fmt::format("  <text x=\"{:.1f}\" y=\"{:.1f}\">{} {}</text>\n", x + 5, y + height / 2 + 4,
                        escaped(segment.name), format_bytes(segment.bytes));
  return text;
}

/// A line below the picture, because what is small has no room for its name in it.
std::string legend_line(const Plan& plan, const Segment& segment, std::size_t index) {
  const double y = kTop + kHeight + kBottom + kLegendLine * static_cast<double>(index);
  const auto step = [&](int i) { return escaped(plan.steps()[static_cast<std::size_t>(i)]); };
  return fmt::format(
      "  <rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"10\" height=\"10\" fill=\"{}\" fill-opacity=\"0.8\"/>"
      "<text x=\"{:.0f}\" y=\"{:.0f}\">{}: {} bytes at {}, {} .. {}</text>\n",
      kLeft, y, kColours[index % kColours.size()], kLeft + 16, y + 9, escaped(segment.name),
      format_count(static_cast<std::int64_t>(segment.bytes)),
      format_count(static_cast<std::int64_t>(segment.offset_bytes)), step(segment.first_step), step(segment.last_step));
}

}  // namespace

std::string plan_svg(const Plan& plan) {
  const auto steps = static_cast<double>(plan.steps().size());
  const double unit = plan.workspace_bytes() > 0 ? kHeight / static_cast<double>(plan.workspace_bytes()) : 0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n  <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kLeft + steps * kStepWidth + 20,
      kTop + kHeight + kBottom + kLegendLine * static_cast<double>(plan.segments().size()) + 10);
  svg += fmt::format("  <text x=\"{:.0f}\" y=\"20\" font-size=\"13\">workspace {} bytes: {} on {}</text>\n", kLeft,
                     format_count(static_cast<std::int64_t>(plan.workspace_bytes())),
                     escaped(problem_text({plan.caps(), {plan.caps().max_tokens}, {}})), escaped(plan.device().name));
  for (std::size_t step = 0; step < plan.steps().size(); ++step) {
    const double x = kLeft + static_cast<double>(step) * kStepWidth;
    svg += fmt::format("  <line x1=\"{0:.0f}\" y1=\"{1:.0f}\" x2=\"{0:.0f}\" y2=\"{2:.0f}\" stroke=\"#bbb\"/>\n", x,
                       kTop, kTop + kHeight);
    svg += fmt::format("  <text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", x + 5, kTop + kHeight + 18,
                       escaped(plan.steps()[step]));
  }
  for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0})
    svg += fmt::format("  <text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                       kTop + kHeight * (1 - part) + 4,
                       format_bytes(static_cast<std::uint64_t>(part * static_cast<double>(plan.workspace_bytes()))));
  for (std::size_t i = 0; i < plan.segments().size(); ++i) {
    if (plan.segments()[i].bytes > 0) svg += box(plan.segments()[i], unit, i);
    svg += legend_line(plan, plan.segments()[i], i);
  }
  return svg + "</svg>\n";
}

void write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file)
    throw Error(ErrorCode::bad_input, fmt::format("{}: cannot be written ({}); choose another place", path,
                                                  errno != 0 ? std::strerror(errno) : "no reason given"));
}

}  // namespace fourfold::cli
