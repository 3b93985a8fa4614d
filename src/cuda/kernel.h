// A kernel ready to launch. This is all that `run` gets: it can launch, and has no way to compile, load or look up.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cuda/handles.h"

namespace fourfold::cuda {

/// A function loaded on one device, shared by every Kernel that launches it. Keeps its module loaded.
struct LoadedFunction {
  std::string name;  ///< KernelSpec::name
  Module module;
  CUfunction function = nullptr;
  int max_threads = 0;  ///< per block, of the compiled code
  int static_shared_bytes = 0;
  std::atomic<int> max_dynamic_shared_bytes{0};  ///< as set at the driver; only rises
  std::atomic<std::uint64_t> launches{0};
};

/// Blocks of a launch. Each at least 1; y and z at most 65535.
struct Grid {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

/// A kernel with the block size and shared memory of its spec. Cheap to copy; thread-safe. ModuleCache makes them.
class Kernel {
 public:
  Kernel() = default;
  Kernel(std::shared_ptr<LoadedFunction> loaded, std::uint32_t block_threads, std::uint32_t dynamic_shared_bytes)
      : loaded_(std::move(loaded)), block_threads_(block_threads), dynamic_shared_bytes_(dynamic_shared_bytes) {}

  /// Enqueues one launch on `stream`, which belongs to the kernel's device (any device may be current); captured when
  /// the stream is. `params` is the entry's one Params argument, copied during the call. Takes no lock, loads nothing.
  /// Throws internal naming the kernel, the grid and the driver's reason.
  template <class Params>
  void launch(const Grid& grid, CUstream stream, const Params& params) const {
    launch_with(grid, stream, &params, dynamic_shared_bytes_);
  }
  /// The same with fewer bytes of dynamic shared memory than the spec's, so that a multiprocessor holds more blocks.
  template <class Params>
  void launch(const Grid& grid, CUstream stream, const Params& params, std::uint32_t dynamic_shared_bytes) const {
    launch_with(grid, stream, &params, dynamic_shared_bytes);
  }

  const std::string& name() const noexcept { return loaded_->name; }
  std::uint32_t block_threads() const noexcept { return block_threads_; }
  std::uint32_t dynamic_shared_bytes() const noexcept { return dynamic_shared_bytes_; }
  CUfunction function() const noexcept { return loaded_->function; }
  explicit operator bool() const noexcept { return loaded_ != nullptr; }

 private:
  void launch_with(const Grid& grid, CUstream stream, const void* params, std::uint32_t dynamic_bytes) const;
  std::shared_ptr<LoadedFunction> loaded_;
  std::uint32_t block_threads_ = 0;
  std::uint32_t dynamic_shared_bytes_ = 0;
};

}  // namespace fourfold::cuda
