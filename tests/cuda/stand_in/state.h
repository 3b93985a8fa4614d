// What the stand-in driver remembers, and the rules of stream capture.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver_api.h"
#include "stand_in.h"

namespace fourfold::cuda {

/// A capture sequence: the streams in it record into one graph.
struct Capture {
  CaptureMode mode = CaptureMode::global;
  std::thread::id thread;
  CUstream origin = nullptr;
  bool invalidated = false;
  CUgraph graph = nullptr;
  std::set<CUstream> streams;
};

struct CUctx_st {
  int ordinal = 0;
};
struct CUstream_st {
  CUcontext context = nullptr;
  std::shared_ptr<Capture> capture;
  std::uint64_t captured_nodes = 0;  ///< recorded through this stream in its capture
  std::uint64_t joined_nodes = 0;    ///< of these, those that another stream of the capture waits for
};
struct CUevent_st {
  CUcontext context = nullptr;
  bool recorded = false;
  std::shared_ptr<Capture> capture;  ///< when recorded in a capture
  CUstream stream = nullptr;
  std::uint64_t captured_nodes = 0;
  double recorded_us = 0;
};
struct CUfunc_st {
  CUmodule module = nullptr;
  std::string name;
  std::map<int, int> attributes;
};
struct CUmod_st {
  CUcontext context = nullptr;
  std::vector<std::unique_ptr<CUfunc_st>> functions;
  std::string image;
};
struct GraphNode {
  std::string name;
  std::string arguments;
  std::function<void()> replay;  ///< what running it does; a kernel only takes its time
};
struct CUgraph_st {
  std::vector<GraphNode> nodes;
};
struct CUgraphExec_st {
  std::vector<GraphNode> nodes;
};

namespace stand_in {

struct DeviceRecord {
  std::string name;
  std::map<int, int> attributes;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_limit = 0;
  std::uint64_t memory_used = 0;
  int retains = 0;
  CUctx_st context;
};
struct Allocation {
  std::uint64_t bytes = 0;
  int device = 0;
};
struct InjectedFailure {
  std::string name;
  int skip = 0;
  CUresult result = kSuccess;
};

struct State {
  State();
  std::recursive_mutex mutex;
  bool initialised = false;
  bool strict_module_load = true;
  int device_count = 0;
  std::vector<std::unique_ptr<DeviceRecord>> devices;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::set<CUmodule> modules;
  std::set<CUfunction> functions;
  std::set<CUgraph> graphs;
  std::set<CUgraphExec> graph_execs;
  std::map<std::uintptr_t, Allocation> memory;
  std::map<std::uintptr_t, Allocation> host;
  std::set<std::shared_ptr<Capture>> captures;  // begun and not ended
  std::vector<StandInCall> log;
  std::vector<InjectedFailure> failures;
  double now_us = 0;        // what has passed: every kernel that runs takes launch_us
  double launch_us = 0;
  std::vector<std::string> launched_params;  // of every launch; empty where the image does not say how many bytes

  void set_defaults();
  CUcontext context_of(CUdevice device) const { return &devices[device]->context; }
};

State& state();

/// The calling thread's stack of current contexts and its capture mode.
struct ThreadState {
  std::vector<CUcontext> contexts;
  int capture_mode = static_cast<int>(CaptureMode::global);
  CUcontext current() const { return contexts.empty() ? nullptr : contexts.back(); }
};
ThreadState& this_thread_state();

/// A call that is unsafe while a capture forbids it: 900, and the captures that forbid it are invalidated.
CUresult check_unsafe(State& all);
/// A call that can never be captured, on a stream: 900 and an invalidated capture when the stream is being captured.
CUresult check_not_captured(CUstream stream);
/// Does `node` now, or records it when `stream` is being captured.
CUresult submit(State& all, CUstream stream, GraphNode node);
void add_to_log(State& all, const std::string& name, const std::string& arguments, CUresult result, bool by_thread);
/// The failure asked for this call of `name`; success when there is none.
CUresult take_failure(State& all, const std::string& name);

template <class... Values>
std::string text(const Values&... values) {
  std::ostringstream stream;
  (stream << ... << values);
  return stream.str();
}

/// Runs one entry point: serialised, logged, and failing when asked to.
template <class Body>
CUresult logged(const char* name, const std::string& arguments, const Body& body) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  CUresult result = take_failure(all, name);
  const bool needs_init = std::strcmp(name, "cuInit") != 0 && std::strcmp(name, "cuDriverGetVersion") != 0;
  if (result == kSuccess) result = needs_init && !all.initialised ? kNotInitialized : body(all);
  add_to_log(all, name, arguments, result, true);
  return result;
}

}  // namespace stand_in
}  // namespace fourfold::cuda
