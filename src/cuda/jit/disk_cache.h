// Compiled kernels in a folder that any number of processes share, and that may be killed, cut, changed, full or closed
// at any time. Nothing that goes wrong with the folder is an error for the caller: it is said once, and the work goes
// on in memory.
//
// Layout below the cache folder: kernels/ (mode 0700), in it <digest>.kernel (key text and image, sealed) and
// locks/<digest>. A lock is a flock on a file, so that it dies with its holder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/compiler.h"
#include "cuda/jit/kernel_key.h"
#include "fourfold/kernels.h"
#include "fourfold/settings.h"

namespace fourfold::cuda {

/// Where the cache is, and how large it may grow.
struct DiskCacheOptions {
  std::filesystem::path folder;                  ///< empty: there is none
  std::uint64_t max_bytes = 1ull << 30;          ///< of all entries; least recently used ones go first
  bool enabled = true;                           ///< false: every call builds, nothing is read or said
  std::function<void(std::string_view)> report;  ///< gets each warning; empty is log_warn. Called from any thread
  /// Called now and then while find_or_build waits for another process; what it throws ends the wait.
  std::function<void()> pause = {};
};

/// From cache_dir, cache_max_bytes and no_disk_cache. Pure.
DiskCacheOptions disk_cache_options(const Settings& settings);

/// See above. All functions are thread-safe, and safe against other processes that use the folder.
class DiskCache {
 public:
  explicit DiskCache(DiskCacheOptions options);
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  /// An image, and whether it was read instead of built.
  struct Found {
    Image image;
    bool from_disk = false;
  };
  /// The image of `key`: read, or else built and written. While it builds, others that ask for this key wait and then
  /// read the result, so each key is built once among all processes. `build` must return a non-empty image; what it
  /// throws goes to the caller, and then nothing is written. Blocks while another process builds the same key, calling
  /// DiskCacheOptions::pause.
  Found find_or_build(const KernelKey& key, const std::function<Image()>& build);
  /// Only looks, and counts as a use. Empty when it is missing, damaged, or the cache is not used.
  std::optional<Image> find(const KernelKey& key);
  /// Only looks; changes nothing.
  bool contains(const KernelKey& key);
  /// Removes an entry whose image turned out to be of no use. No effect when there is none.
  void drop(const KernelKey& key);

  /// Counts and adds up. Never throws for a cache that is not used: `problem` says why.
  CacheStatistics stat();
  /// Removes the least recently used entries until `max_bytes` hold the rest, and partial files older than an hour.
  /// Like all functions below, throws unavailable with the reason when the cache is not used or cannot be changed.
  CacheRemoval trim(std::uint64_t max_bytes);
  /// Reads every entry; the valid ones by architecture and kernel. With `drop_bad`, removes the bad ones.
  CacheVerification verify(bool drop_bad = false);
  /// Removes every entry. Running processes lose nothing that they have in memory.
  CacheRemoval clear();
  /// Copies every valid entry into the new folder `destination` (see AtomicFolder); gives their number. `pause` is
  /// called before each; what it throws ends the work, and then there is no folder.
  std::uint64_t export_to(const std::filesystem::path& destination, const std::function<void()>& pause = {});
  /// Takes over the entries of a folder that export_to wrote. Only files that are entries in full are added; trust in
  /// what they hold is the caller's. `pause` as above; entries taken before stay. Throws bad_input when `source` cannot
  /// be read.
  CacheImport import_from(const std::filesystem::path& source, const std::function<void()>& pause = {});

 private:
  struct Reading;
  std::filesystem::path entry_path(const std::string& digest) const;
  bool ready_to_read();
  bool ready_to_write();
  void warn_once(const std::string& reason);
  void stop_writing(const std::string& reason);
  void require_usable();
  Reading read_entry(const KernelKey& key) const;
  void drop_bad_entry(const KernelKey& key, const std::string& reason);
  void publish(const KernelKey& key, const Image& image);
  CacheRemoval remove_oldest(std::uint64_t max_bytes, bool asked_for);

  DiskCacheOptions options_;
  std::filesystem::path entries_, locks_;
  std::mutex mutex_;  // guards the members below
  bool readable_ = false, writable_ = false, warned_ = false;
  std::string problem_;             // why the cache is not used at all
  std::string write_problem_;       // why nothing is written any more
  std::set<std::string> reported_;  // digests of bad entries that were reported
};

}  // namespace fourfold::cuda
