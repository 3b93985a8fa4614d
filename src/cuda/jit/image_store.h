// Where a kernel's image comes from: memory, kernel pack, disk cache, compiler, in this order; and a switch after which
// only memory counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/compiler.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/kernel_pack.h"
#include "fourfold/settings.h"

namespace fourfold::cuda {

enum class ImageOrigin { memory, pack, disk, compiled };
/// "memory", "pack", "disk", "compiled".
const char* name_of(ImageOrigin origin) noexcept;

/// How often each place served a request since the store was made.
struct ImageCounters {
  std::uint64_t memory = 0, pack = 0, disk = 0, compiled = 0;
  std::uint64_t refusals = 0;  ///< misses after freeze()
  bool operator==(const ImageCounters&) const = default;
};

/// What a store is made of. `sources` must outlive it.
struct ImageStoreOptions {
  const SourceTree* sources = nullptr;
  std::shared_ptr<KernelCompiler> compiler;
  std::vector<std::filesystem::path> pack_folders;
  DiskCacheOptions disk;
  std::function<void(std::string_view)> report;  ///< gets a text per refused pack, once; empty is log_warn
};

/// NVRTC for the embedded sources, looked for in kernel_dir first, with the dumps that `settings` ask for. Pure: it is
/// opened when it is needed.
std::shared_ptr<NvrtcCompiler> nvrtc_compiler(const Settings& settings);

/// The embedded sources, that NVRTC, and packs and cache folder as `settings` say. Pure.
ImageStoreOptions image_store_options(const Settings& settings);

/// Images of kernels for any number of architectures. All functions are thread-safe; requests of one kernel that come
/// at the same time resolve it once.
class ImageStore {
 public:
  explicit ImageStore(ImageStoreOptions options);
  ImageStore(const ImageStore&) = delete;
  ImageStore& operator=(const ImageStore&) = delete;

  struct Resolved {
    std::shared_ptr<const Image> image;
    ImageOrigin origin = ImageOrigin::memory;
  };
  /// The image of `spec` for "sm_90a" and the like. May read files, wait for another process, open NVRTC and compile
  /// for seconds. After freeze(), a miss throws usage before any of that. Throws unavailable when there is neither a
  /// pack with the kernel nor a compiler, and what the compiler throws. A request that failed is tried again by the
  /// next one.
  Resolved get(const KernelSpec& spec, const std::string& architecture);

  /// From now on every miss throws. Cannot be undone. Requests under way finish.
  void freeze() noexcept { frozen_.store(true); }
  bool frozen() const noexcept { return frozen_.load(); }

  /// Where get() would find it, without a compile, a write or a count; empty when it would have to be compiled.
  std::optional<ImageOrigin> locate(const KernelSpec& spec, const std::string& architecture);
  /// Forgets an image that a device refused, and its disk entry, so that the next get() compiles. Throws internal when
  /// the image was compiled by this process or comes from a pack: compiling it again would give the same.
  void discard(const KernelSpec& spec, const std::string& architecture, std::string_view reason);

  ImageCounters counters() const noexcept;
  /// Path of the pack that serves `architecture`, or why there is none. Looks for it if nobody did.
  std::string pack_text(const std::string& architecture);
  DiskCache& disk() noexcept { return disk_; }

 private:
  struct Slot;
  std::shared_ptr<Slot> slot_of(const KernelSpec& spec, const std::string& architecture);
  const PackSearch& pack_for(const std::string& architecture);
  Resolved resolve(const KernelSpec& spec, const std::string& architecture);
  [[noreturn]] void refuse(const KernelSpec& spec, const std::string& architecture);

  ImageStoreOptions options_;
  DiskCache disk_;
  std::mutex slots_mutex_, packs_mutex_;
  std::map<std::string, std::shared_ptr<Slot>> slots_;
  std::map<std::string, PackSearch> packs_;  // by architecture; never removed
  std::atomic<bool> frozen_{false};
  std::atomic<std::uint64_t> memory_{0}, pack_{0}, disk_hits_{0}, compiled_{0}, refusals_{0};
};

}  // namespace fourfold::cuda
