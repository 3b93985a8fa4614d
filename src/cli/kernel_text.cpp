// Kernels, packs, the compiler and the kernel cache in words and in JSON.
#include "kernel_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fourfold::cli {

Json counters_json(const Backend& backend) {
  const KernelCounters counters = kernel_counters(backend);
  Json launches = Json::array();
  for (const KernelLaunches& entry : counters.launches)
    launches.push_back({{"kernel", entry.kernel}, {"launches", entry.launches}});
  return Json{{"from_memory", counters.from_memory}, {"from_pack", counters.from_pack},
              {"from_disk", counters.from_disk},     {"compiled", counters.compiled},
              {"loaded", counters.loaded},           {"refusals", counters.refusals},
              {"launches", std::move(launches)}};
}

Json compiler_json(const KernelCompilerState& compiler) {
  return Json{{"version", compiler.version}, {"path", compiler.path}, {"reason", compiler.reason}};
}

Json pack_json(const PackState& pack) {
  return Json{{"path", pack.path.string()}, {"refused", pack.refused}, {"reason", pack.reason}};
}

Json cache_json(const CacheStatistics& cache) {
  return Json{{"folder", cache.folder.string()}, {"problem", cache.problem},
              {"entries", cache.entries},        {"bytes", cache.bytes},
              {"max_bytes", cache.max_bytes},    {"partial_files", cache.partial_files}};
}

std::string compiler_text(const KernelCompilerState& compiler) {
  return compiler.reason.empty() ? fmt::format("{} ({})", compiler.version, compiler.path)
                                 : "none: " + compiler.reason;
}

std::string pack_text(const PackState& pack) {
  if (pack.path.empty()) return "none: " + pack.reason;
  if (pack.refused.empty()) return pack.path.string();
  return fmt::format("{}; not used: {}", pack.path.string(), fmt::join(pack.refused, "; "));
}

std::string cache_text(const CacheStatistics& cache) {
  if (!cache.problem.empty()) return fmt::format("not used: {}", cache.problem);
  return fmt::format("{}: {} kernel{}, {} of at most {}", cache.folder.string(), cache.entries,
                     cache.entries == 1 ? "" : "s", format_bytes(cache.bytes), format_bytes(cache.max_bytes));
}

std::size_t missing_kernels(const std::vector<KernelState>& kernels) {
  return static_cast<std::size_t>(
      std::count_if(kernels.begin(), kernels.end(), [](const KernelState& kernel) { return kernel.origin.empty(); }));
}

std::string resolution_text(const std::vector<KernelState>& kernels) {
  if (const std::size_t missing = missing_kernels(kernels); missing > 0)
    return fmt::format("missing: {} of {}", missing, kernels.size());
  std::vector<std::string> origins;
  for (const char* origin : {"pack", "disk"})
    if (std::any_of(kernels.begin(), kernels.end(), [&](const KernelState& kernel) { return kernel.origin == origin; }))
      origins.emplace_back(origin);
  return fmt::format("resolved ({})", fmt::join(origins, ", "));
}

}  // namespace fourfold::cli
