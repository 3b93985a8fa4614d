// Replays, events, rests.
#include "benchmark/graph_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace fourfold::benchmark {
namespace {

// Enqueueing two events and a graph of some hundred nodes takes the host some ten microseconds.
constexpr double kLeadInUs = 150;
constexpr int kMostLeadIns = 32;
constexpr double kRestOfReplay = 2;  // rest of a long replay, in its own lengths

void rest(double milliseconds) {
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

GraphTimer::GraphTimer(const cuda::ContextRef& context, const TimerOptions& options)
    : context_(context),
      options_(options),
      stream_(cuda::Stream::create(context)),
      begin_(cuda::Event::create(context, true)),
      end_(cuda::Event::create(context, true)) {}

double GraphTimer::replay_us(const cuda::GraphExec& lead_in, int lead_ins, const cuda::GraphExec& exec,
                             const std::function<void()>& while_running) {
  for (int i = 0; i < lead_ins; ++i) lead_in.launch(stream());
  begin_.record(stream());
  exec.launch(stream());
  end_.record(stream());
  if (while_running) while_running();
  end_.synchronize();
  return 1e3 * static_cast<double>(cuda::Event::elapsed_ms(begin_, end_));
}

CallTimes GraphTimer::time(std::span<const TimedGraph> graphs, const cuda::GraphExec& lead_in,
                           const std::function<void(std::size_t)>& while_running) {
  const cuda::ContextGuard current(*context_);
  // The first replay of a graph uploads it; the second one is a fair guess of its length.
  replay_us(lead_in, 0, lead_in, {});
  const double lead_in_us = std::max(replay_us(lead_in, 0, lead_in, {}), kLeadInUs / kMostLeadIns);
  const int lead_ins = static_cast<int>(std::ceil(kLeadInUs / lead_in_us));
  std::vector<double> pauses_ms(graphs.size(), options_.pause_ms);
  for (std::size_t graph = 0; graph < graphs.size(); ++graph)
    for (int i = 0; i < std::max(options_.warm_up, 1); ++i) {
      const double us = replay_us(lead_in, lead_ins, *graphs[graph].exec, {});
      pauses_ms[graph] = std::max(options_.pause_ms, kRestOfReplay * us / 1e3);
    }
  CallTimes times(graphs.size());
  for (int replay = 0; replay < options_.replays; ++replay)
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      const std::size_t graph = replay % 2 == 0 ? i : graphs.size() - 1 - i;
      rest(options_.pause_ms > 0 ? pauses_ms[graph] : 0);
      const double us = replay_us(lead_in, lead_ins, *graphs[graph].exec, [&] {
        if (while_running) while_running(graph);
      });
      times[graph].push_back(us / graphs[graph].calls);
    }
  return times;
}

}  // namespace fourfold::benchmark
