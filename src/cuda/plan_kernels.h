// The kernels of plans on one GPU: resolved once per plan at warm_up or bind, then handed to run. The one way from a
// plan to launchable code.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "cuda/jit/image_store.h"
#include "cuda/module_cache.h"
#include "cuda/run_moe.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {

/// Thread-safe. Keeps what it resolved for as long as the plan lives; the loaded modules stay.
class PlanKernels {
 public:
  /// Kernels for `context`, whose code is `architecture`'s.
  PlanKernels(ContextRef context, std::string architecture, ImageStoreOptions images);

  /// Every kernel of `plan`, as ModuleCache::warm_up.
  void warm_up(const std::shared_ptr<const PlanData>& plan);
  /// The kernels of `plan` for a launch on `stream` at `tokens`; a plan seen before costs a shared lock and a look-up.
  /// Throws as ModuleCache::resolve does.
  std::shared_ptr<const BoundKernels> resolve(const std::shared_ptr<const PlanData>& plan, CUstream stream,
                                              std::int64_t tokens);
  void freeze() noexcept;
  KernelCounters counters() const;

 private:
  struct Entry {
    std::weak_ptr<const PlanData> plan;  // tells a plan from another one at the same address
    std::shared_ptr<const CudaBoundKernels> kernels;
  };
  std::shared_ptr<const CudaBoundKernels> find(const std::shared_ptr<const PlanData>& plan) const;
  void keep(const std::shared_ptr<const PlanData>& plan, std::shared_ptr<const CudaBoundKernels> kernels);
  /// With one second chance: an image of the disk cache that the device refuses is dropped and compiled again.
  Kernel load(const KernelSpec& spec, const ResolveRequest* request);

  ContextRef context_;
  std::string architecture_;
  ImageStore images_;
  ModuleCache modules_;
  std::mutex second_chance_mutex_;  // replacing an image that the device refused
  mutable std::atomic<std::uint64_t> from_memory_{0};
  mutable std::shared_mutex mutex_;
  std::map<const PlanData*, Entry> plans_;  // guarded by mutex_
};

}  // namespace fourfold::cuda
