// Kernels as files, for the public header: lists, packs, the disk cache. Each call makes its own image store, so that
// it sees the files as they are now.
#include <mutex>
#include <set>
#include <system_error>

#include "core/check.h"
#include "core/file.h"
#include "core/log.h"
#include "cuda/jit/image_store.h"
#include "fourfold/kernels.h"
#include "plan/kernel_catalog.h"

namespace fourfold {
namespace {

namespace fs = std::filesystem;
using cuda::ImageOrigin;

std::vector<KernelSpec> specs_of(const std::string& architecture, std::span<const Caps> problems) {
  return problems.empty() ? kernel_catalog(architecture) : kernels_of_problems(architecture, problems);
}

// Before a compile of minutes. The write itself has the last word.
void check_pack_place(const fs::path& file) {
  check(!file.empty(), ErrorCode::usage, "the name of the pack is empty; name a file, as sm_90a.pack");
  std::error_code error;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  check(fs::is_directory(folder, error), ErrorCode::bad_input, "cannot write '{}': there is no folder '{}'",
        file.string(), folder.string());
  check_writable(file);
}

PackContent content_of(const cuda::KernelPack& pack, const cuda::SourceTree& sources) {
  PackContent content;
  content.path = pack.path();
  content.architecture = pack.target().architecture;
  content.compiler = pack.target().compiler_version;
  content.sources_digest = pack.sources_digest();
  content.bytes = pack.bytes();
  for (const auto& kernel : pack.kernels()) content.kernels.push_back(kernel.spec.name());
  content.stale_reason = pack.stale_reason(sources, content.architecture);
  return content;
}

}  // namespace

struct KernelLibrary::State {
  cuda::ImageStoreOptions options;
  std::shared_ptr<cuda::NvrtcCompiler> compiler;  // that of `options`
  std::mutex mutex;                               // guards reported
  std::set<std::string, std::less<>> reported;

  /// Stores come and go; their warnings are said once.
  void report(std::string_view text) {
    {
      const std::lock_guard lock(mutex);
      if (!reported.emplace(text).second) return;
    }
    log_warn(std::string(text));
  }
  /// Throws unavailable when one of `specs` would have to be compiled again.
  void check_kept(std::span<const KernelSpec> specs, const std::string& architecture) {
    cuda::ImageStore store(options);
    for (const KernelSpec& spec : specs)
      check(store.locate(spec, architecture).has_value(), ErrorCode::unavailable,
            "kernel {} for {} was compiled, but the kernel cache does not keep it: {}", spec.name(), architecture, [&] {
              const CacheStatistics cache = store.disk().stat();
              if (!cache.problem.empty()) return cache.problem;
              return fmt::format("it may hold {} bytes; raise FOURFOLD_CACHE_MAX_BYTES", cache.max_bytes);
            }());
  }
};

KernelLibrary::KernelLibrary(const Settings& settings) : state_(std::make_unique<State>()) {
  state_->options = cuda::image_store_options(settings);
  state_->compiler = cuda::nvrtc_compiler(settings);
  state_->options.compiler = state_->compiler;
  state_->options.report = [state = state_.get()](std::string_view text) { state->report(text); };
  state_->options.disk.report = state_->options.report;
}
KernelLibrary::~KernelLibrary() = default;

// ---- kernels ---------------------------------------------------------------------------------------------------

std::vector<KernelState> KernelLibrary::list(const std::string& architecture, std::span<const Caps> problems) {
  cuda::KernelTarget target{architecture, cuda::compile_options(), ""};
  const KernelCompilerState present = compiler();
  target.compiler_version = present.version.empty() ? "none here" : "nvrtc " + present.version;
  cuda::ImageStore store(state_->options);
  std::vector<KernelState> kernels;
  for (const KernelSpec& spec : specs_of(architecture, problems)) {
    KernelState kernel;
    kernel.name = spec.name();
    kernel.source = spec.source;
    if (const auto origin = store.locate(spec, architecture)) kernel.origin = name_of(*origin);
    const cuda::KernelKey key = cuda::kernel_key(*state_->options.sources, spec, target);
    kernel.key = cuda::describe_key(key.text());
    if (!present.version.empty()) kernel.digest = key.digest;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

PackContent KernelLibrary::build(const std::string& architecture, const fs::path& file, std::span<const Caps> problems,
                                 const Progress& progress) {
  const std::vector<KernelSpec> specs = specs_of(architecture, problems);
  check(!specs.empty(), ErrorCode::usage, "the problems launch no kernel, so there is nothing to pack");
  check_pack_place(file);
  const cuda::KernelTarget target = state_->compiler->target(architecture);
  std::size_t i = 0;
  const auto step = [&] {
    if (progress) progress(i, specs.size(), specs[i].name());
  };
  cuda::DiskCacheOptions disk_options = state_->options.disk;
  disk_options.pause = step;
  cuda::DiskCache disk(std::move(disk_options));
  cuda::KernelPackWriter writer(*state_->options.sources, target);
  for (; i < specs.size(); ++i) {
    step();
    const cuda::KernelKey key = cuda::kernel_key(*state_->options.sources, specs[i], target);
    const auto compile = [&] { return state_->compiler->compile(specs[i], architecture, cuda::Report::silence).image; };
    writer.add(specs[i], disk.find_or_build(key, compile).image);
  }
  if (progress) progress(specs.size(), specs.size(), {});
  writer.write(file);
  return read_pack(file);  // what is on the disk, not what was meant to be
}

KernelPreparation KernelLibrary::prewarm(const std::string& architecture, std::span<const Caps> problems,
                                         const Progress& progress) {
  const std::vector<KernelSpec> specs = specs_of(architecture, problems);
  std::size_t i = 0;
  const auto step = [&] {
    if (progress) progress(i, specs.size(), specs[i].name());
  };
  cuda::ImageStoreOptions options = state_->options;
  options.disk.pause = step;
  cuda::ImageStore store(std::move(options));
  KernelPreparation preparation;
  for (; i < specs.size(); ++i) {
    step();
    if (!store.locate(specs[i], architecture)) {
      const std::string problem = store.disk().stat().problem;
      check(problem.empty(), ErrorCode::unavailable,
            "kernel {} for {} would have to be compiled, and the kernel cache cannot keep it: {}", specs[i].name(),
            architecture, problem);
    }
    preparation.bytes += store.get(specs[i], architecture).image->size();
  }
  if (progress) progress(specs.size(), specs.size(), {});
  const cuda::ImageCounters counters = store.counters();
  preparation.from_pack = counters.pack;
  preparation.from_disk = counters.disk;
  preparation.compiled = counters.compiled;
  // A write may have failed, and the size limit removes the oldest: the last to come may have driven out the first.
  if (preparation.compiled > 0) state_->check_kept(specs, architecture);
  return preparation;
}

KernelCompilerState KernelLibrary::compiler() {
  KernelCompilerState state;
  try {
    const cuda::NvrtcApi& nvrtc = state_->compiler->api();
    state.version = nvrtc.version();
    state.path = nvrtc.path();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unavailable) throw;
    state.reason = error.what();
  }
  return state;
}

PackState KernelLibrary::pack(const std::string& architecture) {
  cuda::PackSearch search = cuda::find_pack(state_->options.pack_folders, *state_->options.sources, architecture);
  PackState state;
  if (search.pack)
    state.path = search.pack->path();
  else
    state.reason = cuda::no_pack_reason(search, state_->options.pack_folders, architecture);
  state.refused = std::move(search.refused);
  return state;
}

PackContent KernelLibrary::read_pack(const fs::path& file) {
  return content_of(cuda::KernelPack::open(file), *state_->options.sources);
}

// ---- the disk cache --------------------------------------------------------------------------------------------

CacheStatistics KernelLibrary::stat() { return cuda::DiskCache(state_->options.disk).stat(); }

CacheRemoval KernelLibrary::trim(std::uint64_t max_bytes) {
  return cuda::DiskCache(state_->options.disk).trim(max_bytes);
}

CacheVerification KernelLibrary::verify(bool remove_bad) {
  return cuda::DiskCache(state_->options.disk).verify(remove_bad);
}

CacheRemoval KernelLibrary::clear() { return cuda::DiskCache(state_->options.disk).clear(); }

std::uint64_t KernelLibrary::export_to(const fs::path& folder, const Pause& pause) {
  return cuda::DiskCache(state_->options.disk).export_to(folder, pause);
}

CacheImport KernelLibrary::import_from(const fs::path& folder, const Pause& pause) {
  return cuda::DiskCache(state_->options.disk).import_from(folder, pause);
}

}  // namespace fourfold
