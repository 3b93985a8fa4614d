// Resolving a plan's kernels, with one second chance for an image from the disk cache that the device refuses.
#include "cuda/plan_kernels.h"

#include <mutex>

#include "core/check.h"

namespace fourfold::cuda {

PlanKernels::PlanKernels(ContextRef context, std::string architecture, ImageStoreOptions images)
    : context_(std::move(context)),
      architecture_(std::move(architecture)),
      images_(std::move(images)),
      modules_([this](const KernelSpec& spec) { return *images_.get(spec, architecture_).image; }) {}

void PlanKernels::warm_up(const std::shared_ptr<const PlanData>& plan) {
  if (find(plan) != nullptr) return;
  auto kernels = std::make_shared<CudaBoundKernels>();
  for (const KernelSpec& spec : plan->kernel_specs) kernels->kernels.push_back(load(spec, nullptr));
  keep(plan, std::move(kernels));
}

std::shared_ptr<const BoundKernels> PlanKernels::resolve(const std::shared_ptr<const PlanData>& plan, CUstream stream,
                                                         std::int64_t tokens) {
  if (auto kernels = find(plan)) return kernels;
  const ResolveRequest request{stream, tokens};
  auto kernels = std::make_shared<CudaBoundKernels>();
  for (const KernelSpec& spec : plan->kernel_specs) kernels->kernels.push_back(load(spec, &request));
  keep(plan, kernels);
  return kernels;
}

Kernel PlanKernels::load(const KernelSpec& spec, const ResolveRequest* request) {
  const auto resolve = [&] {
    return request == nullptr ? modules_.resolve(spec, context_) : modules_.resolve(spec, context_, *request);
  };
  try {
    return resolve();
  } catch (const ImageRefused& refusal) {
    // One thread at a time, and only the first: those who came with it find its result instead of refusing that too.
    const std::scoped_lock one_chance(second_chance_mutex_);
    if (!modules_.contains(spec, *context_))
      images_.discard(spec, architecture_, refusal.what());  // throws when building it again would not help
    return resolve();
  }
}

std::shared_ptr<const CudaBoundKernels> PlanKernels::find(const std::shared_ptr<const PlanData>& plan) const {
  const std::shared_lock lock(mutex_);
  const auto found = plans_.find(plan.get());
  if (found == plans_.end() || found->second.plan.expired()) return nullptr;
  from_memory_.fetch_add(plan->kernel_specs.size(), std::memory_order_relaxed);
  return found->second.kernels;
}

void PlanKernels::keep(const std::shared_ptr<const PlanData>& plan, std::shared_ptr<const CudaBoundKernels> kernels) {
  const std::unique_lock lock(mutex_);
  std::erase_if(plans_, [](const auto& entry) { return entry.second.plan.expired(); });
  plans_.insert_or_assign(plan.get(), Entry{plan, std::move(kernels)});
}

void PlanKernels::freeze() noexcept {
  images_.freeze();
  modules_.freeze();
}

KernelCounters PlanKernels::counters() const {
  const ImageCounters images = images_.counters();
  const ModuleCounters modules = modules_.counters();
  KernelCounters counters;
  counters.from_memory = from_memory_.load() + modules.from_memory;
  counters.from_pack = images.pack;
  counters.from_disk = images.disk;
  counters.compiled = images.compiled;
  counters.loaded = modules.loaded;
  counters.refusals = modules.refusals + images.refusals;
  for (const LaunchCount& count : modules.launches) counters.launches.push_back({count.kernel, count.launches});
  return counters;
}

}  // namespace fourfold::cuda
