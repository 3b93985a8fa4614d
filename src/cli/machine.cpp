// What doctor and bench ask the operating system: memory and last-level cache. Linux.
#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

namespace fourfold::cli {
namespace {

// The number in a file that holds just one (cgroup v2); 0 when there is none ("max", or no such file).
std::uint64_t number_in(const char* path) {
  std::ifstream file(path);
  std::string text;
  std::uint64_t value = 0;
  if (!(file >> text)) return 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() ? value : 0;
}

}  // namespace

MemoryInfo memory_info() {
  MemoryInfo info;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kibibytes = 0;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemTotal:") info.total_bytes = kibibytes * 1024;
    if (key == "MemAvailable:") info.available_bytes = kibibytes * 1024;
  }
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit > 0 && limit < info.total_bytes) {
    const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    info.total_bytes = limit;
    info.available_bytes = std::min(info.available_bytes, limit - std::min(limit, used));
  }
  return info;
}

std::uint64_t last_level_cache_bytes() {
  const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const long level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return static_cast<std::uint64_t>(std::max({level3, level2, 0L}));
}

}  // namespace fourfold::cli
