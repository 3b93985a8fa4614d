// The stand-in driver's records, its control functions, and the rules of stream capture.
#include "state.h"

#include <algorithm>
#include <cstdlib>

namespace fourfold::cuda::stand_in {

namespace {

constexpr std::uint64_t kMemoryBytes = std::uint64_t{64} << 30;
constexpr int kDevices = 2;

void copy_text(char* target, std::size_t size, const std::string& source) {
  const std::size_t length = std::min(size - 1, source.size());
  std::memcpy(target, source.data(), length);
  target[length] = '\0';
}

}  // namespace

State::State() { set_defaults(); }

void State::set_defaults() {
  initialised = false;
  strict_module_load = true;
  device_count = kDevices;
  while (devices.size() < 8) devices.push_back(std::make_unique<DeviceRecord>());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    DeviceRecord& device = *devices[i];
    device.name = "Stand-in GPU " + std::to_string(i);
    device.context.ordinal = static_cast<int>(i);
    device.memory_bytes = device.memory_limit = kMemoryBytes;
    device.attributes = {{kAttributeClockKhz, 1'980'000},       {kAttributeMultiprocessors, 132},
                         {kAttributeMemoryClockKhz, 3'201'000}, {kAttributeMemoryBusBits, 6144},
                         {kAttributeL2Bytes, 60 << 20},         {kAttributeComputeMajor, 9},
                         {kAttributeComputeMinor, 0},           {kAttributeSharedBytesOptin, 227 * 1024}};
  }
  log.clear();
  failures.clear();
  launched_params.clear();
  now_us = 0;
  const char* const launch = std::getenv("STAND_IN_LAUNCH_US");  // for programs that cannot call a control function
  launch_us = launch == nullptr ? 0 : std::atof(launch);
}

State& state() {
  static State* all = new State;  // outlives every handle that a test forgot
  return *all;
}

ThreadState& this_thread_state() {
  thread_local ThreadState local;
  return local;
}

CUresult check_unsafe(State& all) {
  const int mode = this_thread_state().capture_mode;
  if (mode == static_cast<int>(CaptureMode::relaxed)) return kSuccess;
  CUresult result = kSuccess;
  for (const std::shared_ptr<Capture>& capture : all.captures) {
    if (capture->mode == CaptureMode::relaxed) continue;
    const bool local = capture->thread == std::this_thread::get_id();
    const bool global = mode == static_cast<int>(CaptureMode::global) && capture->mode == CaptureMode::global;
    if (!local && !global) continue;
    capture->invalidated = true;
    result = kStreamCaptureUnsupported;
  }
  return result;
}

CUresult check_not_captured(CUstream stream) {
  if (stream == nullptr || stream->capture == nullptr) return kSuccess;
  stream->capture->invalidated = true;
  return kStreamCaptureUnsupported;
}

CUresult submit(State& all, CUstream stream, GraphNode node) {
  if (stream != nullptr && !all.streams.contains(stream)) return kInvalidHandle;
  if (stream == nullptr || stream->capture == nullptr) {
    if (node.replay) node.replay();
    return kSuccess;
  }
  if (stream->capture->invalidated) return kStreamCaptureInvalidated;
  stream->capture->graph->nodes.push_back(std::move(node));
  ++stream->captured_nodes;
  return kSuccess;
}

void add_to_log(State& all, const std::string& name, const std::string& arguments, CUresult result, bool by_thread) {
  StandInCall call{};
  copy_text(call.name, sizeof call.name, name);
  copy_text(call.arguments, sizeof call.arguments, arguments);
  // 0 means "replayed by a graph"
  call.thread = by_thread ? std::hash<std::thread::id>{}(std::this_thread::get_id()) | 1 : 0;
  call.result = result;
  all.log.push_back(call);
}

CUresult take_failure(State& all, const std::string& name) {
  for (auto failure = all.failures.begin(); failure != all.failures.end(); ++failure) {
    if (failure->name != name || failure->skip-- > 0) continue;
    const CUresult result = failure->result;
    all.failures.erase(failure);
    return result;
  }
  return kSuccess;
}

}  // namespace fourfold::cuda::stand_in

using fourfold::cuda::stand_in::state;

extern "C" {

void stand_in_reset() {
  const std::scoped_lock lock(state().mutex);
  state().set_defaults();
}

void stand_in_forget() {
  auto& all = state();
  const std::scoped_lock lock(all.mutex);
  for (const auto& device : all.devices) device->retains = 0, device->memory_used = 0;
  all.streams.clear();
  all.events.clear();
  all.modules.clear();
  all.functions.clear();
  all.graphs.clear();
  all.graph_execs.clear();
  all.memory.clear();
  all.host.clear();
  all.captures.clear();
}

void stand_in_set_device_count(int count) {
  const std::scoped_lock lock(state().mutex);
  state().device_count = std::clamp(count, 0, static_cast<int>(state().devices.size()));
}

void stand_in_set_attribute(int device, int attribute, int value) {
  const std::scoped_lock lock(state().mutex);
  state().devices.at(device)->attributes[attribute] = value;
}

void stand_in_set_memory_limit(int device, std::uint64_t bytes) {
  const std::scoped_lock lock(state().mutex);
  state().devices.at(device)->memory_limit = bytes;
}

void stand_in_set_launch_us(double microseconds) {
  const std::scoped_lock lock(state().mutex);
  state().launch_us = microseconds;
}

void stand_in_set_strict_module_load(int strict) {
  const std::scoped_lock lock(state().mutex);
  state().strict_module_load = strict != 0;
}

void stand_in_fail(const char* name, int skip, int result) {
  const std::scoped_lock lock(state().mutex);
  state().failures.push_back({name, skip, result});
}

int stand_in_failures_left() {
  const std::scoped_lock lock(state().mutex);
  return static_cast<int>(state().failures.size());
}

std::uint64_t stand_in_call_count() {
  const std::scoped_lock lock(state().mutex);
  return state().log.size();
}

bool stand_in_get_call(std::uint64_t index, StandInCall* call) {
  const std::scoped_lock lock(state().mutex);
  if (index >= state().log.size()) return false;
  *call = state().log[index];
  return true;
}

std::uint64_t stand_in_get_params(std::uint64_t launch, void* bytes, std::uint64_t capacity) {
  const std::scoped_lock lock(state().mutex);
  if (launch >= state().launched_params.size()) return 0;
  const std::string& params = state().launched_params[launch];
  std::memcpy(bytes, params.data(), std::min<std::uint64_t>(capacity, params.size()));
  return params.size();
}

int stand_in_live(const char* kind) {
  auto& all = state();
  const std::scoped_lock lock(all.mutex);
  const std::string name = kind;
  if (name == "context") {
    int retains = 0;
    for (const auto& device : all.devices) retains += device->retains;
    return retains;
  }
  const std::map<std::string, std::size_t> sizes = {
      {"stream", all.streams.size()},        {"event", all.events.size()}, {"module", all.modules.size()},
      {"memory", all.memory.size()},         {"host", all.host.size()},    {"graph", all.graphs.size()},
      {"graph_exec", all.graph_execs.size()}};
  const auto found = sizes.find(name);
  return found == sizes.end() ? -1 : static_cast<int>(found->second);
}

std::uint64_t stand_in_memory_used(int device) {
  const std::scoped_lock lock(state().mutex);
  return state().devices.at(device)->memory_used;
}

int stand_in_thread_mode() { return fourfold::cuda::stand_in::this_thread_state().capture_mode; }

int stand_in_context_depth() { return static_cast<int>(fourfold::cuda::stand_in::this_thread_state().contexts.size()); }
}
