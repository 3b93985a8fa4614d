// The order of look-up, once per kernel.
#include "cuda/jit/image_store.h"

#include "core/check.h"
#include "core/dynamic_library.h"
#include "core/log.h"

namespace fourfold::cuda {
namespace {

// Lengths keep two kernels from having one name.
std::string slot_name(const KernelSpec& spec, const std::string& architecture) {
  std::string name = fmt::format("{}:{}{}:{}", architecture.size(), architecture, spec.source.size(), spec.source);
  for (const auto& [macro, value] : spec.defines)
    name += fmt::format("{}:{}{}:{}", macro.size(), macro, value.size(), value);
  return name;
}

}  // namespace

const char* name_of(ImageOrigin origin) noexcept {
  switch (origin) {
    case ImageOrigin::memory:
      return "memory";
    case ImageOrigin::pack:
      return "pack";
    case ImageOrigin::disk:
      return "disk";
    case ImageOrigin::compiled:
      return "compiled";
  }
  return "nowhere";
}

// `mutex` is held while the kernel is resolved; `image` alone is read by those who must not wait.
struct ImageStore::Slot {
  std::mutex mutex;
  std::atomic<std::shared_ptr<const Image>> image;
  ImageOrigin first_origin = ImageOrigin::memory;  // where it came from; guarded by mutex
};

std::shared_ptr<NvrtcCompiler> nvrtc_compiler(const Settings& settings) {
  std::vector<std::string> nvrtc_folders;
  if (!settings.kernel_dir.empty()) nvrtc_folders.push_back(DynamicLibrary::literal_pattern(settings.kernel_dir));
  return std::make_shared<NvrtcCompiler>(SourceTree::embedded(), nvrtc_folders, settings.jit_dump);
}

ImageStoreOptions image_store_options(const Settings& settings) {
  ImageStoreOptions options;
  options.sources = &SourceTree::embedded();
  options.compiler = nvrtc_compiler(settings);
  options.pack_folders = pack_folders(settings.kernel_dir);
  options.disk = disk_cache_options(settings);
  return options;
}

ImageStore::ImageStore(ImageStoreOptions options) : options_(std::move(options)), disk_(options_.disk) {
  check(options_.sources != nullptr && options_.compiler != nullptr, ErrorCode::internal,
        "an image store needs sources and a compiler");
  if (!options_.report) options_.report = [](std::string_view text) { log_warn(text); };
}

std::shared_ptr<ImageStore::Slot> ImageStore::slot_of(const KernelSpec& spec, const std::string& architecture) {
  const std::string name = slot_name(spec, architecture);
  const std::lock_guard lock(slots_mutex_);
  std::shared_ptr<Slot>& slot = slots_[name];
  if (slot == nullptr) slot = std::make_shared<Slot>();
  return slot;
}

const PackSearch& ImageStore::pack_for(const std::string& architecture) {
  const std::lock_guard lock(packs_mutex_);
  const auto known = packs_.find(architecture);
  if (known != packs_.end()) return known->second;
  const PackSearch& search =
      packs_.emplace(architecture, find_pack(options_.pack_folders, *options_.sources, architecture)).first->second;
  for (const std::string& text : search.refused) options_.report(text);
  return search;
}

void ImageStore::refuse(const KernelSpec& spec, const std::string& architecture) {
  refusals_.fetch_add(1);
  fail(ErrorCode::usage,
       "kernel {} for {} is not loaded, and kernels are frozen; call warm_up with every plan before freeze",
       spec.name(), architecture);
}

ImageStore::Resolved ImageStore::get(const KernelSpec& spec, const std::string& architecture) {
  const std::shared_ptr<Slot> slot = slot_of(spec, architecture);
  if (std::shared_ptr<const Image> image = slot->image.load()) {
    memory_.fetch_add(1);
    return {std::move(image), ImageOrigin::memory};
  }
  if (frozen()) refuse(spec, architecture);
  const std::lock_guard lock(slot->mutex);
  if (std::shared_ptr<const Image> image = slot->image.load()) {  // another thread resolved it while we waited
    memory_.fetch_add(1);
    return {std::move(image), ImageOrigin::memory};
  }
  if (frozen()) refuse(spec, architecture);
  Resolved resolved = resolve(spec, architecture);
  slot->first_origin = resolved.origin;
  slot->image.store(resolved.image);
  return resolved;
}

ImageStore::Resolved ImageStore::resolve(const KernelSpec& spec, const std::string& architecture) {
  const PackSearch& search = pack_for(architecture);
  if (search.pack)
    if (const auto found = search.pack->find(*options_.sources, spec)) {
      pack_.fetch_add(1);
      return {std::make_shared<const Image>(found->begin(), found->end()), ImageOrigin::pack};
    }
  KernelTarget target;
  try {
    target = options_.compiler->target(architecture);
  } catch (const Error& error) {
    fail(error.code(), "kernel {} for {}: {}; and {}", spec.name(), architecture, error.what(),
         pack_text(architecture));
  }
  const KernelKey key = kernel_key(*options_.sources, spec, target);
  DiskCache::Found found = disk_.find_or_build(key, [&] { return options_.compiler->compile(spec, architecture); });
  (found.from_disk ? disk_hits_ : compiled_).fetch_add(1);
  return {std::make_shared<const Image>(std::move(found.image)),
          found.from_disk ? ImageOrigin::disk : ImageOrigin::compiled};
}

std::optional<ImageOrigin> ImageStore::locate(const KernelSpec& spec, const std::string& architecture) {
  if (slot_of(spec, architecture)->image.load() != nullptr) return ImageOrigin::memory;
  const PackSearch& search = pack_for(architecture);
  if (search.pack && search.pack->find(*options_.sources, spec)) return ImageOrigin::pack;
  try {
    if (disk_.contains(kernel_key(*options_.sources, spec, options_.compiler->target(architecture))))
      return ImageOrigin::disk;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) throw;  // no compiler: nothing can be on disk under its version
  }
  return std::nullopt;
}

void ImageStore::discard(const KernelSpec& spec, const std::string& architecture, std::string_view reason) {
  const std::shared_ptr<Slot> slot = slot_of(spec, architecture);
  const std::lock_guard lock(slot->mutex);
  if (slot->image.load() == nullptr) return;  // another thread was first
  check(slot->first_origin == ImageOrigin::disk, ErrorCode::internal,
        "kernel {} for {} is of no use: {}; its image comes from '{}', so that building it again would not help",
        spec.name(), architecture, reason, name_of(slot->first_origin));
  options_.report(
      fmt::format("kernel {} for {} from the disk cache is dropped: {}", spec.name(), architecture, reason));
  disk_.drop(kernel_key(*options_.sources, spec, options_.compiler->target(architecture)));
  slot->image.store(nullptr);
}

ImageCounters ImageStore::counters() const noexcept {
  return {memory_.load(), pack_.load(), disk_hits_.load(), compiled_.load(), refusals_.load()};
}

std::string ImageStore::pack_text(const std::string& architecture) {
  const PackSearch& search = pack_for(architecture);
  if (search.pack) return search.pack->path().string();
  return no_pack_reason(search, options_.pack_folders, architecture);
}

}  // namespace fourfold::cuda
