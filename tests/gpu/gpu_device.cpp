// Opens the driver once and puts counting functions into its table.
#include "gpu/gpu_device.h"

#include <chrono>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/dynamic_library.h"
#include "cuda/cuda_backend.h"
#include "cuda/jit/compiler.h"
#include "cuda/jit/nvrtc_api.h"
#include "gpu/flush_memory.h"
#include "gpu/planted_faults.h"

namespace fourfold::gpu_test {
namespace {

thread_local int captures_open = 0;  // begun and not ended by this thread
thread_local int deliberate_depth = 0;

using Counter = std::atomic<std::uint64_t> CallsInCapture::*;

/// Replaces one entry of the table by a function that counts and calls the driver's. One instance an entry: `kEntry`
/// tells those of the same type apart.
template <auto kEntry, Counter kCounter, class... Parameters>
void count_calls(cuda::EntryPoint<Parameters...>& entry) {
  static cuda::CUresult (*original)(Parameters...) = nullptr;
  if (entry.function == nullptr) return;  // optional, and this driver has none
  original = entry.function;
  entry.function = [](Parameters... parameters) -> cuda::CUresult {
    if (captures_open > 0 && deliberate_depth == 0) ++(calls_in_capture().*kCounter);
    return original(parameters...);
  };
}

cuda::CUresult (*begin_capture)(cuda::CUstream, int) = nullptr;
cuda::CUresult (*end_capture)(cuda::CUstream, cuda::CUgraph*) = nullptr;

cuda::CUresult counted_begin(cuda::CUstream stream, int mode) {
  const cuda::CUresult result = begin_capture(stream, mode);
  if (result == cuda::kSuccess) {
    ++captures_open;
    ++calls_in_capture().captures;
  }
  return result;
}

/// However it ends, the capture is over.
cuda::CUresult counted_end(cuda::CUstream stream, cuda::CUgraph* graph) {
  if (captures_open > 0) --captures_open;
  return end_capture(stream, graph);
}

void install_counters(cuda::DriverApi& driver) {
  using Entries = cuda::EntryPoints;
  count_calls<&Entries::mem_alloc, &CallsInCapture::allocations>(driver.mem_alloc);
  count_calls<&Entries::mem_free, &CallsInCapture::allocations>(driver.mem_free);
  count_calls<&Entries::mem_host_alloc, &CallsInCapture::allocations>(driver.mem_host_alloc);
  count_calls<&Entries::mem_free_host, &CallsInCapture::allocations>(driver.mem_free_host);
  count_calls<&Entries::module_load_data, &CallsInCapture::loads>(driver.module_load_data);
  count_calls<&Entries::func_load, &CallsInCapture::loads>(driver.func_load);
  count_calls<&Entries::stream_synchronize, &CallsInCapture::synchronisations>(driver.stream_synchronize);
  count_calls<&Entries::event_synchronize, &CallsInCapture::synchronisations>(driver.event_synchronize);
  begin_capture = std::exchange(driver.stream_begin_capture.function, counted_begin);
  end_capture = std::exchange(driver.stream_end_capture.function, counted_end);
}

}  // namespace

CallsInCapture& calls_in_capture() {
  static CallsInCapture calls;
  return calls;
}

DeliberateCalls::DeliberateCalls() { ++deliberate_depth; }
DeliberateCalls::~DeliberateCalls() { --deliberate_depth; }

const std::shared_ptr<const cuda::DriverApi>& counting_driver() {
  static const std::shared_ptr<const cuda::DriverApi> driver = [] {
    std::shared_ptr<const cuda::DriverApi> opened = cuda::DriverApi::open();
    // open() makes a mutable object and nobody else has seen this one yet.
    auto& table = const_cast<cuda::DriverApi&>(*opened);
    install_flush_allocations(table);
    install_counters(table);
    return opened;
  }();
  return driver;
}

int gpu_count() {
  int count = 0;
  counting_driver()->call(counting_driver()->device_get_count, -1, &count);
  return count;
}

cuda::ContextRef context(int ordinal) { return cuda::Context::retain(counting_driver(), ordinal); }

namespace {

struct Shared {
  std::shared_ptr<Backend> tiles, naive;
};
Shared& shared() {
  static Shared backends;
  return backends;
}

/// Nothing planted: null.
std::unique_ptr<PatchedSources>& planted_sources() {
  static std::unique_ptr<PatchedSources> sources;
  return sources;
}
bool short_workspaces = false;

std::vector<std::string> compiler_folders(const Settings& settings) {
  if (settings.kernel_dir.empty()) return {};
  return {DynamicLibrary::literal_pattern(settings.kernel_dir)};
}

cuda::ImageStoreOptions image_options(const Settings& settings) {
  cuda::ImageStoreOptions options = cuda::image_store_options(settings);
  if (planted_sources() == nullptr) return options;
  options.sources = &planted_sources()->tree();
  options.compiler = std::make_shared<cuda::NvrtcCompiler>(*options.sources, compiler_folders(settings));
  options.pack_folders.clear();
  options.disk.enabled = false;
  return options;
}

}  // namespace

std::shared_ptr<Backend> new_backend(int ordinal, const Settings& settings, bool naive_kernels) {
  return std::make_shared<Backend>(cuda::make_cuda_interface(counting_driver(), ordinal, image_options(settings),
                                                             settings.poison_workspace, naive_kernels));
}

std::shared_ptr<Backend> new_backend(int ordinal) { return new_backend(ordinal, settings_from_environment()); }

Backend& gpu() {
  if (shared().tiles == nullptr) shared().tiles = new_backend();
  return *shared().tiles;
}

Backend& naive_gpu() {
  if (shared().naive == nullptr) shared().naive = new_backend(0, settings_from_environment(), true);
  return *shared().naive;
}

void close_gpu() { shared() = {}; }

KernelCounters shared_counters() {
  KernelCounters sum = kernel_counters(gpu());
  if (shared().naive == nullptr) return sum;
  const KernelCounters naive = kernel_counters(naive_gpu());
  sum.from_pack += naive.from_pack;
  sum.from_disk += naive.from_disk;
  sum.compiled += naive.compiled;
  sum.loaded += naive.loaded;
  return sum;
}

void plant(const std::string& fault) {
  const PlantedFault& planted = planted_fault(fault);
  if (planted.path.empty())
    short_workspaces = true;
  else
    planted_sources() = std::make_unique<PatchedSources>(planted);
}

bool workspaces_are_short() { return short_workspaces; }

Compiler find_compiler() {
  try {
    return {"nvrtc " + cuda::NvrtcApi::open(compiler_folders(settings_from_environment()))->version(), ""};
  } catch (const Error& error) {
    return {"", error.what()};
  }
}

Depth& depth() {
  static Depth chosen = Depth::full;
  return chosen;
}

namespace {
using Clock = std::chrono::steady_clock;
Clock::time_point deadline = Clock::time_point::max();
}  // namespace

bool out_of_time() { return Clock::now() >= deadline; }

void set_deadline(double seconds) {
  deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string& cases_folder() {
  static std::string folder;
  return folder;
}

}  // namespace fourfold::gpu_test
