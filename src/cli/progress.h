// How far a long verb is: a bar with throughput and time left on a terminal, whole lines in a log. Always stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fourfold::cli {

/// Not thread-safe. Writes nothing but progress; a failing stderr is ignored.
class Progress {
 public:
  enum class Unit : std::uint8_t { bytes, items };
  /// `verb` starts every line. `lines`: in a log, one line per label; otherwise a log gets nothing.
  Progress(std::string verb, Unit unit, bool lines);
  /// Ends the bar, so that the next text starts on a line of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `done` of `total` units; `label` is what is being worked on.
  void update(std::uint64_t done, std::uint64_t total, const std::string& label);
  /// Removes the bar.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string verb_;
  Unit unit_;
  bool lines_;
  bool terminal_;
  bool drawn_ = false;
  std::string last_label_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_drawn_{};
};

}  // namespace fourfold::cli
