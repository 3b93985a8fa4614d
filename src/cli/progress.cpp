// How far a long verb is: a bar with throughput and time left on a terminal, whole lines in a log. Always stderr.
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "output.h"

namespace fourfold::cli {

Progress::Progress(std::string verb, Unit unit, bool lines)
    : verb_(std::move(verb)), unit_(unit), lines_(lines), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { finish(); }

void Progress::finish() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void Progress::update(std::uint64_t done, std::uint64_t total, const std::string& label) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const auto amount = [&](std::uint64_t value) {
    return unit_ == Unit::bytes ? format_bytes(value) : format_count(static_cast<std::int64_t>(value));
  };
  if (!terminal_) {
    if (!lines_ || label == last_label_) return;
    last_label_ = label;
    std::fputs(fmt::format("{} {} (from {} of {})\n", verb_, label, amount(done), amount(total)).c_str(), stderr);
    return;
  }
  constexpr auto kRedraw = std::chrono::milliseconds(100);  // ten frames a second are smooth and cost nothing
  if (drawn_ && done < total && now - last_drawn_ < kRedraw) return;
  last_drawn_ = now;
  constexpr std::size_t kWidth = 24;
  const double share = total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const std::string speed = unit_ == Unit::bytes ? format_rate(rate) : fmt::format("{:.0f}/s", rate);
  const double left = rate > 0 ? static_cast<double>(total - std::min(done, total)) / rate : -1;
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  std::fputs(fmt::format("\r\x1b[K{} [{}] {} of {}  {}  {} left  {}", verb_, bar, amount(done), amount(total), speed,
                         format_duration(left), label)
                 .c_str(),
             stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace fourfold::cli
