// Times captured graphs in turn, with rests in between.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "cuda/handles.h"

namespace fourfold::benchmark {

struct TimerOptions {
  int replays = 31;     ///< timings of every graph
  int warm_up = 3;      ///< replays before them
  double pause_ms = 3;  ///< least rest before a timing
};

/// A graph, and how many calls one replay makes.
struct TimedGraph {
  const cuda::GraphExec* exec = nullptr;
  int calls = 1;
};

/// Microseconds of one call, [graph][replay].
using CallTimes = std::vector<std::vector<double>>;

/// Owns a stream and two events of a device.
class GraphTimer {
 public:
  GraphTimer(const cuda::ContextRef& context, const TimerOptions& options);
  cuda::CUstream stream() const noexcept { return stream_.value(); }
  /// Replays every graph in turn, `replays` times, forwards and backwards by turns. Before each timing the device rests
  /// for pause_ms, or twice as long as that graph takes where that is more, so that it stays cool; then untimed replays
  /// of `lead_in` keep it busy while the host enqueues event, graph and event, so that no launch from the host is in
  /// the time. `while_running(graph)` is called on the host while that timed replay runs.
  CallTimes time(std::span<const TimedGraph> graphs, const cuda::GraphExec& lead_in,
                 const std::function<void(std::size_t)>& while_running = {});

 private:
  /// Microseconds of a replay after `lead_ins` replays of `lead_in`.
  double replay_us(const cuda::GraphExec& lead_in, int lead_ins, const cuda::GraphExec& exec,
                   const std::function<void()>& while_running);
  cuda::ContextRef context_;
  TimerOptions options_;
  cuda::Stream stream_;
  cuda::Event begin_, end_;
};

}  // namespace fourfold::benchmark
