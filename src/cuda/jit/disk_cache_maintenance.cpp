// Size limit, listing, checking, clearing and copying of the disk cache.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <tuple>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "cuda/jit/cache_entry.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/file_lock.h"

namespace fourfold::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDigestCharacters = 32;
// No compile and no write takes this long: what is older was left by a process that is no more.
constexpr std::int64_t kAbandonedSeconds = 3600;

struct FileState {
  fs::path path;
  std::uint64_t bytes = 0;
  timespec modified{};
};

bool is_entry_name(const std::string& name) {
  const std::string suffix = kEntrySuffix;
  return name.size() == kDigestCharacters + suffix.size() && name.ends_with(suffix) &&
         name.find_first_not_of("0123456789abcdef") == kDigestCharacters;
}

bool is_partial_name(const std::string& name) {
  return name.starts_with('.') && name.find(".partial-") != std::string::npos;
}

// Files may vanish while we look: what is gone is skipped.
std::vector<FileState> files_in(const fs::path& folder, bool (*wanted)(const std::string&)) {
  std::vector<FileState> files;
  std::error_code error;
  fs::directory_iterator item(folder, error);
  for (; !error && item != fs::directory_iterator(); item.increment(error)) {
    if (!wanted(item->path().filename().string())) continue;
    struct stat info {};
    if (::lstat(item->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    files.push_back({item->path(), static_cast<std::uint64_t>(info.st_size), info.st_mtim});
  }
  return files;
}

bool is_older(const FileState& a, const FileState& b) {
  if (a.modified.tv_sec != b.modified.tv_sec) return a.modified.tv_sec < b.modified.tv_sec;
  if (a.modified.tv_nsec != b.modified.tv_nsec) return a.modified.tv_nsec < b.modified.tv_nsec;
  return a.path < b.path;
}

void remove_abandoned(const fs::path& entries, const fs::path& locks, std::int64_t seconds) {
  const std::int64_t limit = static_cast<std::int64_t>(std::time(nullptr)) - seconds;
  for (const FileState& file : files_in(entries, is_partial_name))
    if (file.modified.tv_sec <= limit) ::unlink(file.path.c_str());
  std::string reason;
  for (const FileState& file : files_in(locks, [](const std::string&) { return true; }))
    if (file.modified.tv_sec <= limit) FileLock::acquire(file.path, FileLock::Wait::no, reason);  // taken and removed
}

CacheEntry describe(const fs::path& path, const Entry& entry) {
  CacheEntry description;
  description.digest = path.stem().string();
  KernelSpec spec;
  for (auto& [name, value] : key_fields(entry.key_text)) {
    if (name == "source") spec.source = value;
    if (name == "macro") spec.defines.emplace_back(value, "");
    if (name == "value" && !spec.defines.empty()) spec.defines.back().second = value;
    if (name == "architecture") description.architecture = value;
    if (name == "compiler") description.compiler = value;
  }
  description.kernel = spec.name();
  return description;
}

// Throws bad_input when the file is no entry in full, or is not the one that its name says.
CacheEntry check_entry(const FileState& file, Entry& entry) {
  entry = read_entry_file(file.path);
  const std::string digest = hash_hex(entry.key_text.data(), entry.key_text.size());
  check(file.path.stem() == digest, ErrorCode::bad_input, "its key has the digest {}, which is not its name", digest);
  CacheEntry description = describe(file.path, entry);
  description.bytes = file.bytes;
  description.last_used = file.modified.tv_sec;
  return description;
}

}  // namespace

// Called when the folder is known to be good.
CacheRemoval DiskCache::remove_oldest(std::uint64_t max_bytes, bool asked_for) {
  CacheRemoval removal;
  std::string reason;
  // After a write, another process that trims just now does our work too.
  const auto wait = asked_for ? FileLock::Wait::yes : FileLock::Wait::no;
  const std::optional<FileLock> lock = FileLock::acquire(locks_ / "trim", wait, reason);
  check(lock || !asked_for, ErrorCode::unavailable, "no entry can be removed: {}", reason);
  std::vector<FileState> files = files_in(entries_, is_entry_name);
  for (const FileState& file : files) removal.bytes_left += file.bytes;
  removal.entries_left = files.size();
  if (!lock || removal.bytes_left <= max_bytes) return removal;
  std::sort(files.begin(), files.end(), is_older);
  for (const FileState& file : files) {
    if (removal.bytes_left <= max_bytes) break;
    if (::unlink(file.path.c_str()) != 0) continue;
    ++removal.entries;
    --removal.entries_left;
    removal.bytes += file.bytes;
    removal.bytes_left -= file.bytes;
  }
  return removal;
}

void DiskCache::require_usable() {
  ready_to_read();
  const std::lock_guard lock(mutex_);
  check(options_.enabled, ErrorCode::unavailable, "the kernel cache is turned off; unset FOURFOLD_NO_DISK_CACHE");
  check(problem_.empty(), ErrorCode::unavailable, "the kernel cache is not used: {}", problem_);
}

CacheStatistics DiskCache::stat() {
  CacheStatistics statistics;
  statistics.folder = entries_;
  statistics.max_bytes = options_.max_bytes;
  const bool readable = ready_to_read();
  {
    const std::lock_guard lock(mutex_);
    statistics.problem = options_.enabled ? problem_ : "it is turned off (FOURFOLD_NO_DISK_CACHE)";
    if (statistics.problem.empty()) statistics.problem = write_problem_;
  }
  if (!readable) return statistics;
  for (const FileState& file : files_in(entries_, is_entry_name)) {
    ++statistics.entries;
    statistics.bytes += file.bytes;
  }
  statistics.partial_files = files_in(entries_, is_partial_name).size();
  return statistics;
}

CacheRemoval DiskCache::trim(std::uint64_t max_bytes) {
  require_usable();
  if (!ready_to_read()) return {};
  ready_to_write();  // makes the folder of the locks
  remove_abandoned(entries_, locks_, kAbandonedSeconds);
  return remove_oldest(max_bytes, true);
}

CacheVerification DiskCache::verify(bool drop_bad) {
  require_usable();
  CacheVerification result;
  if (!ready_to_read()) return result;
  for (const FileState& file : files_in(entries_, is_entry_name)) {
    try {
      Entry entry;
      result.valid.push_back(check_entry(file, entry));
    } catch (const Error& error) {
      result.bad.push_back({file.path.string(), error.what()});
      if (!drop_bad || ::unlink(file.path.c_str()) == 0 || errno == ENOENT) continue;
      fail(ErrorCode::unavailable, "the bad entry '{}' cannot be removed: {}", file.path.string(),
           std::generic_category().message(errno));
    }
  }
  const auto by_name = [](const CacheEntry& a, const CacheEntry& b) {
    return std::tie(a.architecture, a.kernel, a.digest) < std::tie(b.architecture, b.kernel, b.digest);
  };
  std::sort(result.valid.begin(), result.valid.end(), by_name);
  return result;
}

CacheRemoval DiskCache::clear() { return trim(0); }

std::uint64_t DiskCache::export_to(const fs::path& destination, const std::function<void()>& pause) {
  require_usable();
  AtomicFolder folder(destination);
  std::uint64_t count = 0;
  if (ready_to_read())
    for (const FileState& file : files_in(entries_, is_entry_name)) {
      if (pause) pause();
      Entry entry;
      try {
        check_entry(file, entry);
      } catch (const Error&) {
        continue;  // no loss to whoever imports
      }
      write_file_atomically(folder.path() / file.path.filename(), encode_entry(entry));
      ++count;
    }
  folder.commit();
  return count;
}

CacheImport DiskCache::import_from(const fs::path& source, const std::function<void()>& pause) {
  require_usable();
  std::error_code looked;
  const fs::directory_iterator readable(source, looked);
  check(!looked, ErrorCode::bad_input, "cannot read the folder '{}': {}; name one that an export wrote",
        source.string(), looked.message());
  CacheImport result;
  const bool writable = ready_to_write();
  check(writable, ErrorCode::unavailable, "nothing can be imported: {}", stat().problem);
  for (const FileState& file : files_in(source, is_entry_name)) {
    if (pause) pause();
    Entry entry;
    try {
      check_entry(file, entry);
    } catch (const Error& error) {
      result.refused.push_back({file.path.string(), error.what()});
      continue;
    }
    const fs::path path = entries_ / file.path.filename();
    if (fs::exists(path, looked)) {
      ++result.present;
      continue;
    }
    write_file_atomically(path, encode_entry(entry));
    ++result.added;
  }
  remove_oldest(options_.max_bytes, false);
  return result;
}

}  // namespace fourfold::cuda
