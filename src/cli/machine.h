// What doctor and bench ask the operating system: memory and last-level cache. Linux.
#pragma once

#include <cstdint>

namespace fourfold::cli {

/// From /proc/meminfo, lowered to this process's cgroup limit where there is one. 0 when unknown.
struct MemoryInfo {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;
};
MemoryInfo memory_info();

/// Size of the largest cache that the system reports for CPU 0; 0 when unknown.
std::uint64_t last_level_cache_bytes();

}  // namespace fourfold::cli
