// The one place where kernels become functions of a device. Whoever launches gets a Kernel from here before; nothing
// else loads modules, so a refusal here is a refusal everywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/handles.h"
#include "cuda/kernel.h"
#include "plan/kernel_spec.h"

namespace fourfold::cuda {

/// The cubin of a kernel: from a pack, a disk cache or a compiler. May take long; is called by one thread at a time,
/// never under capture of the asking stream and never after freeze(); must not call the cache back. What it throws
/// reaches the caller.
using ImageSource = std::function<std::vector<std::byte>(const KernelSpec&)>;

/// For whom a kernel is resolved.
struct ResolveRequest {
  CUstream stream = nullptr;  ///< where it will be launched; its capture state decides about loading
  std::int64_t tokens = 0;    ///< live count of the call, for the text of a refusal
};

struct LaunchCount {
  std::string kernel;  ///< KernelSpec::name
  int device = 0;
  std::uint64_t launches = 0;
};

struct ModuleCounters {
  std::uint64_t from_memory = 0;      ///< resolved without loading
  std::uint64_t loaded = 0;           ///< modules loaded
  std::uint64_t refusals = 0;         ///< misses under capture or after freeze()
  std::vector<LaunchCount> launches;  ///< every loaded kernel, ascending by name, then device
};

/// Loaded kernels by (KernelSpec::name, device), for devices of the one architecture that the image source serves.
/// Thread-safe; a hit takes a shared lock for a look-up and makes no driver call.
class ModuleCache {
 public:
  explicit ModuleCache(ImageSource source) : source_(std::move(source)) {}
  ModuleCache(const ModuleCache&) = delete;
  ModuleCache& operator=(const ModuleCache&) = delete;

  /// The kernel of `spec` on the context's device. On a miss its image is asked for and loaded; that is legal while
  /// other streams are captured, by any thread, and leaves their captures valid.
  /// A miss while `request.stream` is captured (active or invalidated) or after freeze() throws usage before the image
  /// is asked for, naming the kernel, the token count and the call that fixes it; the stream stays as it was.
  /// Throws internal when the code does not keep what `spec` says, ImageRefused (internal) naming the kernel when the
  /// device does not take its image; else as the image source and DriverApi::call do.
  /// Nothing is kept of a load that failed.
  Kernel resolve(const KernelSpec& spec, const ContextRef& context, const ResolveRequest& request);
  /// The same for no stream in particular: only after freeze() a miss throws.
  Kernel resolve(const KernelSpec& spec, const ContextRef& context);

  /// Resolves every spec on the context's device, for no stream in particular. Legal while other threads capture.
  /// After freeze() a miss throws usage.
  void warm_up(std::span<const KernelSpec> specs, const ContextRef& context);

  /// Whether resolve() would be a hit. Loads nothing, counts nothing.
  bool contains(const KernelSpec& spec, const Context& context) const;

  /// From now on a miss is an error. Cannot be undone: a server that froze can rely on it.
  void freeze() noexcept { frozen_.store(true); }
  bool frozen() const noexcept { return frozen_.load(); }

  ModuleCounters counters() const;

 private:
  using Key = std::pair<std::string, int>;  // KernelSpec::name, device ordinal
  using Loaded = std::shared_ptr<LoadedFunction>;

  Loaded find(const Key& key) const;
  /// Throws the refusal of `spec` when its loading is forbidden; `request` null: for no stream.
  void refuse_if_forbidden(const KernelSpec& spec, const Context& context, const ResolveRequest* request);
  Loaded find_or_load(const KernelSpec& spec, const ContextRef& context, const ResolveRequest* request);
  Loaded load(const KernelSpec& spec, const ContextRef& context);
  Kernel kernel_for(const KernelSpec& spec, const ContextRef& context, const Loaded& loaded);

  ImageSource source_;
  std::atomic<bool> frozen_{false};
  std::atomic<std::uint64_t> from_memory_{0};
  std::atomic<std::uint64_t> refusals_{0};
  std::atomic<std::uint64_t> loads_{0};
  std::mutex load_mutex_;       // one load at a time; taken before functions_mutex_
  std::mutex attribute_mutex_;  // raising function attributes
  mutable std::shared_mutex functions_mutex_;
  std::map<Key, Loaded> functions_;  // guarded by functions_mutex_
};

}  // namespace fourfold::cuda
