// A cache folder of its own for each test, with counted builds and collected reports.
#pragma once

#include <sys/time.h>

#include "cuda/jit/disk_cache.h"
#include "jit_fixture.h"

namespace fourfold::cuda {

struct DiskCacheTest : testing::Test {
  TemporaryFolder folder;
  Reports reports;
  int builds = 0;

  DiskCacheOptions options(const fs::path& where) { return {where, 1ull << 30, true, reports.sink()}; }
  DiskCacheOptions options() { return options(folder / "cache"); }
  std::function<Image()> build(const std::string& text = "an image") {
    return [this, text] {
      ++builds;
      return image_of(text);
    };
  }
  fs::path entry(const KernelKey& key) const { return folder / "cache" / "kernels" / (key.digest + ".kernel"); }
  /// Every file below the cache folder.
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& item : fs::recursive_directory_iterator(folder / "cache")) count += item.is_regular_file();
    return count;
  }
  static void set_age(const fs::path& path, long seconds) {
    timeval now{};
    ::gettimeofday(&now, nullptr);
    const timeval times[2] = {{now.tv_sec - seconds, 0}, {now.tv_sec - seconds, 0}};
    ASSERT_EQ(::utimes(path.c_str(), times), 0);
  }
};

}  // namespace fourfold::cuda
