// Owners of what the driver hands out: contexts, streams, events, modules, memory, graphs. Move-only; each keeps the
// driver and its device's context alive. Destructors work from any thread and never invalidate a capture of another
// thread; what the driver refuses to destroy is logged, not thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda/driver_api.h"

namespace fourfold::cuda {

/// The primary context of one device, which other libraries of the process share. Immutable, thread-safe.
class Context {
 public:
  /// Retains it, creating it when nobody has yet: seconds and some hundred MiB of device memory the first time.
  /// Throws unavailable for an ordinal that the driver does not have, else as DriverApi::call does.
  static std::shared_ptr<const Context> retain(std::shared_ptr<const DriverApi> driver, int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  const DriverApi& driver() const noexcept { return *driver_; }
  int ordinal() const noexcept { return ordinal_; }
  CUdevice device() const noexcept { return device_; }
  CUcontext handle() const noexcept { return handle_; }

 private:
  Context(std::shared_ptr<const DriverApi> driver, int ordinal, CUdevice device, CUcontext handle)
      : driver_(std::move(driver)), ordinal_(ordinal), device_(device), handle_(handle) {}
  std::shared_ptr<const DriverApi> driver_;
  int ordinal_;
  CUdevice device_;
  CUcontext handle_;
};
using ContextRef = std::shared_ptr<const Context>;

/// Makes a context current on the calling thread and restores what was current. Legal under capture. Stays on its
/// thread; guards nest. Throws as DriverApi::call does.
class ContextGuard {
 public:
  explicit ContextGuard(const Context& context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const Context& context_;
};

/// For destructors: makes the context current and the thread's capture mode relaxed as far as the driver lets it,
/// restores both, and logs what failed in between. Never throws.
class ReleaseScope {
 public:
  explicit ReleaseScope(const Context& context) noexcept;
  ~ReleaseScope();
  ReleaseScope(const ReleaseScope&) = delete;
  ReleaseScope& operator=(const ReleaseScope&) = delete;
  /// Logs any result but success, and but that of a driver which has shut down at the end of the process.
  void report(const char* call, CUresult result) const noexcept;

 private:
  const Context& context_;
  bool pushed_ = false;
  bool relaxed_ = false;
  int mode_ = static_cast<int>(CaptureMode::relaxed);
};

/// One value of the driver's, destroyed by `kRelease` with its context current. An empty handle holds Value{}.
template <class Value, EntryPoint<Value> EntryPoints::*kRelease>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : context_(std::move(other.context_)), value_(std::exchange(other.value_, Value{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      release();
      context_ = std::move(other.context_);
      value_ = std::exchange(other.value_, Value{});
    }
    return *this;
  }
  ~Handle() { release(); }
  Value value() const noexcept { return value_; }
  explicit operator bool() const noexcept { return value_ != Value{}; }
  /// Null for an empty handle.
  const ContextRef& context() const noexcept { return context_; }
  /// Gives the value away: nobody destroys it any more.
  Value detach() noexcept {
    context_.reset();
    return std::exchange(value_, Value{});
  }

 protected:
  Handle(ContextRef context, Value value) noexcept : context_(std::move(context)), value_(value) {}
  /// Destroys the value now; the handle is empty then.
  void release() noexcept {
    if (value_ == Value{}) return;
    const ReleaseScope scope(*context_);
    const auto& entry = context_->driver().*kRelease;
    scope.report(entry.name, entry.function(std::exchange(value_, Value{})));
  }
  template <class... Parameters, class... Arguments>
  void call(const EntryPoint<Parameters...>& entry, Arguments... arguments) const {
    context_->driver().call(entry, context_->ordinal(), arguments...);
  }
  const DriverApi& driver() const noexcept { return context_->driver(); }

 private:
  ContextRef context_;
  Value value_{};
};

/// An event. Thread-safe as the driver is.
class Event : public Handle<CUevent, &EntryPoints::event_destroy> {
 public:
  Event() = default;
  /// `timed`: usable with elapsed_ms; an event that only orders streams is cheaper. Throws as DriverApi::call does.
  static Event create(ContextRef context, bool timed);
  /// Marks what was enqueued on `stream` so far; captured when the stream is.
  void record(CUstream stream) const;
  /// Waits on the host. Forbidden under capture.
  void synchronize() const;
  /// Milliseconds between two timed events whose work is done.
  static float elapsed_ms(const Event& begin, const Event& end);

 private:
  using Handle::Handle;
};

/// Device memory, base aligned to 256, content undefined.
class DeviceMemory : public Handle<CUdeviceptr, &EntryPoints::mem_free> {
 public:
  DeviceMemory() = default;
  /// No driver call for 0 bytes. Forbidden under capture. Throws unavailable with bytes asked and bytes free.
  static DeviceMemory allocate(ContextRef context, std::uint64_t bytes);
  /// Owns memory that another DeviceMemory detached.
  static DeviceMemory adopt(ContextRef context, std::byte* data, std::uint64_t bytes) noexcept {
    DeviceMemory memory(std::move(context), reinterpret_cast<CUdeviceptr>(data));
    memory.bytes_ = bytes;
    return memory;
  }
  std::uint64_t bytes() const noexcept { return *this ? bytes_ : 0; }
  /// The address for the device; the host must not look behind it.
  std::byte* data() const noexcept { return reinterpret_cast<std::byte*>(value()); }

 private:
  using Handle::Handle;
  std::uint64_t bytes_ = 0;
};

/// Page-locked host memory, usable with every device of the process.
class HostMemory : public Handle<void*, &EntryPoints::mem_free_host> {
 public:
  HostMemory() = default;
  /// No driver call for 0 bytes. Forbidden under capture. Throws unavailable when there is none left.
  static HostMemory allocate(ContextRef context, std::uint64_t bytes);
  std::span<std::byte> span() const noexcept {
    return {static_cast<std::byte*>(value()), static_cast<std::size_t>(*this ? bytes_ : 0)};
  }

 private:
  using Handle::Handle;
  std::uint64_t bytes_ = 0;
};

/// The device will not take an image: no cubin, one for other devices, or without the function asked for. Another image
/// of the same kernel may do; for other failures of loading it would not.
class ImageRefused : public Error {
 public:
  using Error::Error;
};

/// Loaded code. Its functions die with it.
class Module : public Handle<CUmodule, &EntryPoints::module_unload> {
 public:
  Module() = default;
  /// Loads a cubin. Forbidden under capture unless the thread's mode is relaxed. Throws ImageRefused (internal), else
  /// as DriverApi::call does.
  static Module load(ContextRef context, std::span<const std::byte> image);
  /// The extern "C" function `name`, complete: nothing of it is left for its first launch. Throws ImageRefused naming
  /// it when there is none.
  CUfunction function(const char* name) const;

 private:
  using Handle::Handle;
};

/// What a graph's nodes read and write and nobody else owns: page-locked host memory of captured copies, mostly.
using KeptAlive = std::vector<std::shared_ptr<const void>>;

/// A graph made ready to launch. Of the addresses in its nodes it keeps alive what its capture was given to keep, and
/// nothing else. It must not be destroyed while a launch of it is under way.
class GraphExec : public Handle<CUgraphExec, &EntryPoints::graph_exec_destroy> {
 public:
  GraphExec() = default;
  GraphExec(GraphExec&&) noexcept = default;
  GraphExec& operator=(GraphExec&&) noexcept = default;
  ~GraphExec() { release(); }  // before the memory that it reads
  /// Enqueues every node on `stream`.
  void launch(CUstream stream) const;

 private:
  friend class Graph;
  GraphExec(ContextRef context, CUgraphExec exec, std::shared_ptr<const KeptAlive> kept)
      : Handle(std::move(context), exec), kept_(std::move(kept)) {}
  std::shared_ptr<const KeptAlive> kept_;
};

/// What a capture recorded. Keeps alive what the capture was given to keep, as does every GraphExec made of it.
class Graph : public Handle<CUgraph, &EntryPoints::graph_destroy> {
 public:
  Graph() = default;
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;
  ~Graph() { release(); }  // before the memory that its nodes name
  /// Launches, copies and fills recorded.
  std::size_t node_count() const;
  /// Forbidden under capture.
  GraphExec instantiate() const;

 private:
  friend class ScopedCapture;
  Graph(ContextRef context, CUgraph graph, std::shared_ptr<const KeptAlive> kept)
      : Handle(std::move(context), graph), kept_(std::move(kept)) {}
  std::shared_ptr<const KeptAlive> kept_;
};

/// An explicit stream that does not wait for the default one. Thread-safe as the driver is.
class Stream : public Handle<CUstream, &EntryPoints::stream_destroy> {
 public:
  Stream() = default;
  static Stream create(ContextRef context);
  /// Waits on the host until everything enqueued is done; errors of earlier work surface here. Forbidden under capture.
  void synchronize() const;
  /// Later work of this stream waits for `event`. Joins the event's capture when it has one.
  void wait(const Event& event) const;

 private:
  using Handle::Handle;
};

// Copies and fills, enqueued on `stream`; captured when it is. Host memory must stay until they are done, and as long
// as a graph that recorded them: ScopedCapture::keep sees to that. Lengths are those of the spans; 0 bytes make no
// call. Throw as DriverApi::call does.
void copy_to_device(const Context& context, CUstream stream, std::byte* target, std::span<const std::byte> host);
void copy_to_host(const Context& context, CUstream stream, std::span<std::byte> host, const std::byte* source);
void copy_on_device(const Context& context, CUstream stream, std::byte* target, std::span<const std::byte> source);
void fill(const Context& context, CUstream stream, std::span<std::byte> target, unsigned char value);

/// A capture of `stream` from construction to end(). Destroyed without end(): ends and drops it, so that the stream is
/// usable after an exception. Use on one thread; `stream` must not be the null stream.
class ScopedCapture {
 public:
  /// Throws as DriverApi::call does: internal when the stream is captured already.
  ScopedCapture(ContextRef context, CUstream stream, CaptureMode mode);
  ~ScopedCapture();
  ScopedCapture(const ScopedCapture&) = delete;
  ScopedCapture& operator=(const ScopedCapture&) = delete;
  /// Whatever a recorded copy reads or writes and the caller may drop first: it lives until the last of the graph and
  /// its execs is destroyed, or until this capture is dropped. Makes no driver call. Throws usage after end().
  void keep(std::shared_ptr<const void> resource);
  /// The graph. Throws usage when a forbidden call invalidated the capture; it is over then, too. Once.
  Graph end();

 private:
  ContextRef context_;
  CUstream stream_;
  std::shared_ptr<KeptAlive> kept_ = std::make_shared<KeptAlive>();
  bool open_ = true;
};

}  // namespace fourfold::cuda
