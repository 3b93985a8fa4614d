// Resolving kernels: memory, or image source and module load, or a refusal.
#include "cuda/module_cache.h"

#include <limits>

#include "core/check.h"
#include "cuda/capture_guard.h"

namespace fourfold::cuda {
namespace {

int function_attribute(const Context& context, CUfunction function, int which) {
  int value = 0;
  context.driver().call(context.driver().func_get_attribute, context.ordinal(), &value, which, function);
  return value;
}

}  // namespace

Kernel ModuleCache::resolve(const KernelSpec& spec, const ContextRef& context, const ResolveRequest& request) {
  return kernel_for(spec, context, find_or_load(spec, context, &request));
}

Kernel ModuleCache::resolve(const KernelSpec& spec, const ContextRef& context) {
  return kernel_for(spec, context, find_or_load(spec, context, nullptr));
}

void ModuleCache::warm_up(std::span<const KernelSpec> specs, const ContextRef& context) {
  for (const KernelSpec& spec : specs) resolve(spec, context);
}

bool ModuleCache::contains(const KernelSpec& spec, const Context& context) const {
  return find({spec.name(), context.ordinal()}) != nullptr;
}

ModuleCounters ModuleCache::counters() const {
  ModuleCounters counters;
  counters.from_memory = from_memory_.load();
  counters.refusals = refusals_.load();
  counters.loaded = loads_.load();
  const std::shared_lock lock(functions_mutex_);
  for (const auto& [key, loaded] : functions_)
    counters.launches.push_back({key.first, key.second, loaded->launches.load(std::memory_order_relaxed)});
  return counters;
}

ModuleCache::Loaded ModuleCache::find(const Key& key) const {
  const std::shared_lock lock(functions_mutex_);
  const auto found = functions_.find(key);
  return found == functions_.end() ? nullptr : found->second;
}

void ModuleCache::refuse_if_forbidden(const KernelSpec& spec, const Context& context, const ResolveRequest* request) {
  const bool is_frozen = frozen();
  const CaptureState state = request == nullptr || is_frozen
                                 ? CaptureState::none
                                 : capture_state(context.driver(), context.ordinal(), request->stream);
  if (!is_frozen && state == CaptureState::none) return;
  refusals_.fetch_add(1);
  const std::string whose = request == nullptr ? "in warm_up" : fmt::format("for {} tokens", request->tokens);
  if (is_frozen)
    fail(ErrorCode::usage,
         "kernel {} {} is not loaded on cuda:{}, and the cache is frozen; call warm_up(plan, backend) before freeze()",
         spec.name(), whose, context.ordinal());
  fail(ErrorCode::usage,
       "kernel {} {} is not loaded on cuda:{}, and the stream's capture is {}; call warm_up(plan, backend) before the "
       "capture begins",
       spec.name(), whose, context.ordinal(), capture_state_name(state));
}

ModuleCache::Loaded ModuleCache::find_or_load(const KernelSpec& spec, const ContextRef& context,
                                              const ResolveRequest* request) {
  const Key key{spec.name(), context->ordinal()};
  if (Loaded found = find(key)) {
    from_memory_.fetch_add(1, std::memory_order_relaxed);
    return found;
  }
  refuse_if_forbidden(spec, *context, request);
  const std::scoped_lock one_load(load_mutex_);
  if (Loaded found = find(key)) {  // another thread loaded it while this one waited
    from_memory_.fetch_add(1, std::memory_order_relaxed);
    return found;
  }
  refuse_if_forbidden(spec, *context, request);  // the wait may have been long: frozen, or captured, by now
  Loaded loaded = load(spec, context);
  loads_.fetch_add(1);
  const std::unique_lock lock(functions_mutex_);
  functions_.emplace(key, loaded);
  return loaded;
}

ModuleCache::Loaded ModuleCache::load(const KernelSpec& spec, const ContextRef& context) {
  const std::vector<std::byte> image = source_(spec);
  const ScopedRelaxedCapture relaxed(context->driver());
  auto loaded = std::make_shared<LoadedFunction>();
  loaded->name = spec.name();
  try {
    loaded->module = Module::load(context, image);
    loaded->function = loaded->module.function(spec.entry().c_str());
    loaded->max_threads = function_attribute(*context, loaded->function, kFunctionMaxThreads);
    loaded->static_shared_bytes = function_attribute(*context, loaded->function, kFunctionSharedBytes);
    loaded->max_dynamic_shared_bytes = function_attribute(*context, loaded->function, kFunctionMaxDynamicSharedBytes);
  } catch (const ImageRefused& error) {
    throw ImageRefused(error.code(), fmt::format("kernel {} cannot be loaded: {}", loaded->name, error.what()));
  } catch (const Error& error) {
    fail(error.code(), "kernel {} cannot be loaded: {}", loaded->name, error.what());
  }
  return loaded;
}

Kernel ModuleCache::kernel_for(const KernelSpec& spec, const ContextRef& context, const Loaded& loaded) {
  check(spec.block_threads >= 1 && spec.block_threads <= loaded->max_threads, ErrorCode::internal,
        "kernel {}: the plan says {} threads a block, its code on cuda:{} allows 1 .. {}", loaded->name,
        spec.block_threads, context->ordinal(), loaded->max_threads);
  const std::int64_t dynamic_bytes = spec.shared_bytes - loaded->static_shared_bytes;
  check(dynamic_bytes >= 0 && dynamic_bytes <= std::numeric_limits<int>::max(), ErrorCode::internal,
        "kernel {}: the plan says {} bytes of shared memory, its code on cuda:{} has {} of static alone", loaded->name,
        spec.shared_bytes, context->ordinal(), loaded->static_shared_bytes);
  const int wanted = static_cast<int>(dynamic_bytes);
  if (wanted > loaded->max_dynamic_shared_bytes.load()) {
    const std::scoped_lock lock(attribute_mutex_);
    if (wanted > loaded->max_dynamic_shared_bytes.load()) {
      const DriverApi& driver = context->driver();
      const CUresult result =
          driver.func_set_attribute.function(loaded->function, kFunctionMaxDynamicSharedBytes, wanted);
      check(result != kInvalidValue, ErrorCode::internal,
            "kernel {}: {} bytes of dynamic shared memory are more than cuda:{} gives a block; plan for this device",
            loaded->name, wanted, context->ordinal());
      driver.check_result(driver.func_set_attribute, context->ordinal(), result);
      loaded->max_dynamic_shared_bytes.store(wanted);
    }
  }
  return {loaded, static_cast<std::uint32_t>(spec.block_threads), static_cast<std::uint32_t>(wanted)};
}

}  // namespace fourfold::cuda
