// Kernels, packs, the compiler and the kernel cache in words and in JSON, for every verb that speaks of them.
#pragma once

#include <string>

#include "fourfold/backend.h"
#include "fourfold/kernels.h"
#include "output.h"

namespace fourfold::cli {

/// Where the backend's kernels came from and how often each was launched. For a GPU: on a CPU everything is zero.
Json counters_json(const Backend& backend);

Json compiler_json(const KernelCompilerState& compiler);
Json pack_json(const PackState& pack);
Json cache_json(const CacheStatistics& cache);

/// "13.0 (/path)", NVRTC's version, or why there is none.
std::string compiler_text(const KernelCompilerState& compiler);
/// The path, or why there is none.
std::string pack_text(const PackState& pack);
/// "/folder: 50 kernels, 1.2 MiB of 1.00 GiB", or why it is not used.
std::string cache_text(const CacheStatistics& cache);

/// Every kernel of the list as "resolved (pack)", "resolved (pack, disk)" or "missing: 2 of 4". An empty list is
/// resolved.
std::string resolution_text(const std::vector<KernelState>& kernels);
/// How many of them would have to be compiled.
std::size_t missing_kernels(const std::vector<KernelState>& kernels);

}  // namespace fourfold::cli
