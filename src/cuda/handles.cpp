// Creating, using and destroying what the driver hands out.
#include "cuda/handles.h"

#include "core/check.h"
#include "core/log.h"

namespace fourfold::cuda {
namespace {

CUdeviceptr address(const std::byte* data) noexcept { return reinterpret_cast<CUdeviceptr>(data); }

/// The driver counts in size_t.
std::size_t driver_size(std::uint64_t bytes) noexcept { return static_cast<std::size_t>(bytes); }

}  // namespace

ContextRef Context::retain(std::shared_ptr<const DriverApi> driver, int ordinal) {
  CUdevice device = 0;
  driver->call(driver->device_get, ordinal, &device, ordinal);
  CUcontext handle = nullptr;
  driver->call(driver->primary_ctx_retain, ordinal, &handle, device);
  return ContextRef(new Context(std::move(driver), ordinal, device, handle));
}

Context::~Context() {
  const CUresult result = driver_->primary_ctx_release.function(device_);
  if (result != kSuccess && result != kDeinitialized)
    log_error(fmt::format("{} on cuda:{} failed: {}", driver_->primary_ctx_release.name, ordinal_,
                          driver_->result_text(result)));
}

ContextGuard::ContextGuard(const Context& context) : context_(context) {
  context.driver().call(context.driver().ctx_push_current, context.ordinal(), context.handle());
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  const DriverApi& driver = context_.driver();
  const CUresult result = driver.ctx_pop_current.function(&popped);
  if (result != kSuccess)
    log_error(fmt::format("{} on cuda:{} failed: {}", driver.ctx_pop_current.name, context_.ordinal(),
                          driver.result_text(result)));
}

ReleaseScope::ReleaseScope(const Context& context) noexcept : context_(context) {
  const DriverApi& driver = context.driver();
  pushed_ = driver.ctx_push_current.function(context.handle()) == kSuccess;
  relaxed_ = driver.thread_exchange_capture_mode.function(&mode_) == kSuccess;
}

ReleaseScope::~ReleaseScope() {
  const DriverApi& driver = context_.driver();
  CUcontext popped = nullptr;
  if (relaxed_) report(driver.thread_exchange_capture_mode.name, driver.thread_exchange_capture_mode.function(&mode_));
  if (pushed_) report(driver.ctx_pop_current.name, driver.ctx_pop_current.function(&popped));
}

void ReleaseScope::report(const char* call, CUresult result) const noexcept {
  if (result == kSuccess || result == kDeinitialized) return;
  try {
    log_error(fmt::format("{} on cuda:{} failed while destroying: {}", call, context_.ordinal(),
                          context_.driver().result_text(result)));
  } catch (...) {  // a log that cannot be written must not end the process
  }
}

Event Event::create(ContextRef context, bool timed) {
  const ContextGuard current(*context);
  CUevent event = nullptr;
  const DriverApi& driver = context->driver();
  driver.call(driver.event_create, context->ordinal(), &event, timed ? kEventTimed : kEventDisableTiming);
  return {std::move(context), event};
}

void Event::record(CUstream stream) const { call(driver().event_record, value(), stream); }

void Event::synchronize() const { call(driver().event_synchronize, value()); }

float Event::elapsed_ms(const Event& begin, const Event& end) {
  float milliseconds = 0;
  begin.call(begin.driver().event_elapsed_time, &milliseconds, begin.value(), end.value());
  return milliseconds;
}

DeviceMemory DeviceMemory::allocate(ContextRef context, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const ContextGuard current(*context);
  const DriverApi& driver = context->driver();
  CUdeviceptr data = 0;
  const CUresult result = driver.mem_alloc.function(&data, driver_size(bytes));
  if (result == kOutOfMemory) {
    std::size_t free = 0, total = 0;
    const bool known = driver.mem_get_info.function(&free, &total) == kSuccess;
    fail(ErrorCode::unavailable,
         "{} on cuda:{}: {} bytes asked, {} free ({}); free device memory, or plan for fewer tokens",
         driver.mem_alloc.name, context->ordinal(), bytes, known ? fmt::format("{} of {}", free, total) : "unknown",
         driver.result_text(result));
  }
  driver.check_result(driver.mem_alloc, context->ordinal(), result);
  DeviceMemory memory(std::move(context), data);
  memory.bytes_ = bytes;
  return memory;
}

HostMemory HostMemory::allocate(ContextRef context, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const ContextGuard current(*context);
  const DriverApi& driver = context->driver();
  void* data = nullptr;
  const CUresult result = driver.mem_host_alloc.function(&data, driver_size(bytes), kHostMemoryPortable);
  if (result == kOutOfMemory)
    fail(ErrorCode::unavailable, "{} on cuda:{}: {} bytes of page-locked host memory asked: {}; free host memory",
         driver.mem_host_alloc.name, context->ordinal(), bytes, driver.result_text(result));
  driver.check_result(driver.mem_host_alloc, context->ordinal(), result);
  HostMemory memory(std::move(context), data);
  memory.bytes_ = bytes;
  return memory;
}

Module Module::load(ContextRef context, std::span<const std::byte> image) {
  if (image.empty())
    throw ImageRefused(ErrorCode::internal,
                       fmt::format("an empty image cannot be loaded on cuda:{}", context->ordinal()));
  const ContextGuard current(*context);
  CUmodule module = nullptr;
  const DriverApi& driver = context->driver();
  const CUresult result = driver.module_load_data.function(&module, static_cast<const void*>(image.data()));
  if (result == kInvalidImage || result == kNoBinaryForGpu)
    throw ImageRefused(ErrorCode::internal, fmt::format("{} on cuda:{} failed: {}", driver.module_load_data.name,
                                                        context->ordinal(), driver.result_text(result)));
  driver.check_result(driver.module_load_data, context->ordinal(), result);
  return {std::move(context), module};
}

CUfunction Module::function(const char* name) const {
  const ContextGuard current(*context());
  CUfunction function = nullptr;
  const CUresult result = driver().module_get_function.function(&function, value(), name);
  if (result == kNotFound)
    throw ImageRefused(ErrorCode::internal,
                       fmt::format("the image has no function {} ({} on cuda:{}); its entry must be extern \"C\"", name,
                                   driver().module_get_function.name, context()->ordinal()));
  driver().check_result(driver().module_get_function, context()->ordinal(), result);
  if (driver().func_load.function != nullptr) call(driver().func_load, function);
  return function;
}

void GraphExec::launch(CUstream stream) const { call(driver().graph_launch, value(), stream); }

std::size_t Graph::node_count() const {
  std::size_t count = 0;
  call(driver().graph_get_nodes, value(), nullptr, &count);
  return count;
}

GraphExec Graph::instantiate() const {
  const ContextGuard current(*context());
  CUgraphExec exec = nullptr;
  call(driver().graph_instantiate, &exec, value(), 0ULL);
  return {context(), exec, kept_};
}

Stream Stream::create(ContextRef context) {
  const ContextGuard current(*context);
  CUstream stream = nullptr;
  const DriverApi& driver = context->driver();
  driver.call(driver.stream_create, context->ordinal(), &stream, kStreamNonBlocking);
  return {std::move(context), stream};
}

void Stream::synchronize() const { call(driver().stream_synchronize, value()); }

void Stream::wait(const Event& event) const { call(driver().stream_wait_event, value(), event.value(), 0U); }

void copy_to_device(const Context& context, CUstream stream, std::byte* target, std::span<const std::byte> host) {
  if (host.empty()) return;
  const ContextGuard current(context);
  context.driver().call(context.driver().memcpy_to_device, context.ordinal(), address(target),
                        static_cast<const void*>(host.data()), host.size(), stream);
}

void copy_to_host(const Context& context, CUstream stream, std::span<std::byte> host, const std::byte* source) {
  if (host.empty()) return;
  const ContextGuard current(context);
  context.driver().call(context.driver().memcpy_to_host, context.ordinal(), static_cast<void*>(host.data()),
                        address(source), host.size(), stream);
}

void copy_on_device(const Context& context, CUstream stream, std::byte* target, std::span<const std::byte> source) {
  if (source.empty()) return;
  const ContextGuard current(context);
  context.driver().call(context.driver().memcpy_on_device, context.ordinal(), address(target), address(source.data()),
                        source.size(), stream);
}

void fill(const Context& context, CUstream stream, std::span<std::byte> target, unsigned char value) {
  if (target.empty()) return;
  const ContextGuard current(context);
  context.driver().call(context.driver().memset_bytes, context.ordinal(), address(target.data()), value, target.size(),
                        stream);
}

ScopedCapture::ScopedCapture(ContextRef context, CUstream stream, CaptureMode mode)
    : context_(std::move(context)), stream_(stream) {
  const DriverApi& driver = context_->driver();
  driver.call(driver.stream_begin_capture, context_->ordinal(), stream, static_cast<int>(mode));
}

ScopedCapture::~ScopedCapture() {
  if (!open_) return;
  const DriverApi& driver = context_->driver();
  CUgraph graph = nullptr;
  driver.stream_end_capture.function(stream_, &graph);  // the graph is unwanted, and an invalidated one gives an error
  if (graph != nullptr) driver.graph_destroy.function(graph);
}

void ScopedCapture::keep(std::shared_ptr<const void> resource) {
  check(open_, ErrorCode::usage, "the capture on cuda:{} has ended: give it what it should keep before end()",
        context_->ordinal());
  kept_->push_back(std::move(resource));
}

Graph ScopedCapture::end() {
  check(open_, ErrorCode::internal, "a capture on cuda:{} is ended twice", context_->ordinal());
  open_ = false;
  CUgraph graph = nullptr;
  const DriverApi& driver = context_->driver();
  driver.call(driver.stream_end_capture, context_->ordinal(), stream_, &graph);
  return {context_, graph, std::move(kept_)};
}

}  // namespace fourfold::cuda
