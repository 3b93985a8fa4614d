// Looking up, building once, and publishing entries. Maintenance is in disk_cache_maintenance.cpp.
#include "cuda/jit/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/check.h"
#include "core/file.h"
#include "core/log.h"
#include "cuda/jit/cache_entry.h"
#include "cuda/jit/file_lock.h"

namespace fourfold::cuda {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivateMode = 0700;

std::string system_text(int error) { return std::generic_category().message(error); }

struct FolderState {
  bool exists = false;
  std::string problem;  // why nothing in it can be trusted
};

// Somebody else who can write to the folder can plant code that we would run.
FolderState look_at_folder(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return {false, fmt::format("cannot look at '{}': {}", path.string(), system_text(errno))};
  }
  if (!S_ISDIR(info.st_mode)) return {true, fmt::format("'{}' is no folder", path.string())};
  const uid_t self = ::geteuid();
  if (info.st_uid != self && info.st_uid != 0)
    return {true, fmt::format("'{}' belongs to user {}, not to user {}", path.string(), info.st_uid, self)};
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {true, fmt::format("others can write to '{}' (mode {:04o}; remove it, or chmod go-w after making sure of "
                              "what is in it)",
                              path.string(), static_cast<unsigned>(info.st_mode & 07777))};
  return {true, {}};
}

// Empty, or why the folder cannot be made.
std::string make_private_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), kPrivateMode) == 0 || errno == EEXIST) return {};
  return fmt::format("cannot make the folder '{}': {}", path.string(), system_text(errno));
}

}  // namespace

DiskCacheOptions disk_cache_options(const Settings& settings) {
  return {settings.cache_dir, settings.cache_max_bytes, !settings.no_disk_cache, {}, {}};
}

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {
  if (!options_.report) options_.report = [](std::string_view text) { log_warn(text); };
  if (options_.folder.empty()) return;
  entries_ = options_.folder / "kernels";
  locks_ = entries_ / "locks";
}

fs::path DiskCache::entry_path(const std::string& digest) const { return entries_ / (digest + kEntrySuffix); }

// ---- the folder ------------------------------------------------------------------------------------------------

// Called with mutex_ held.
void DiskCache::warn_once(const std::string& reason) {
  if (std::exchange(warned_, true)) return;
  options_.report(
      fmt::format("kernel cache: {}; going on in memory (FOURFOLD_CACHE_DIR names another folder)", reason));
}

void DiskCache::stop_writing(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (write_problem_.empty()) write_problem_ = reason;
  warn_once(reason);
}

bool DiskCache::ready_to_read() {
  const std::lock_guard lock(mutex_);
  if (!options_.enabled || !problem_.empty()) return false;
  if (readable_) return true;
  if (options_.folder.empty()) {
    problem_ = "there is no folder for it: neither FOURFOLD_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
  } else {
    const FolderState outer = look_at_folder(options_.folder);
    const FolderState inner = outer.problem.empty() && outer.exists ? look_at_folder(entries_) : FolderState{};
    problem_ = outer.problem.empty() ? inner.problem : outer.problem;
    readable_ = outer.exists && inner.exists && problem_.empty();
  }
  if (!problem_.empty()) warn_once(problem_);
  return readable_;
}

bool DiskCache::ready_to_write() {
  const bool readable = ready_to_read();
  {
    const std::lock_guard lock(mutex_);
    if (!options_.enabled || !problem_.empty() || !write_problem_.empty()) return false;
    if (writable_) return true;
    if (!readable) {
      std::error_code error;
      fs::create_directories(options_.folder.parent_path(), error);  // a failure shows in the next line
      problem_ = make_private_folder(options_.folder);
    }
    if (problem_.empty()) write_problem_ = make_private_folder(entries_);
    if (problem_.empty() && write_problem_.empty()) write_problem_ = make_private_folder(locks_);
    if (!problem_.empty() || !write_problem_.empty()) {
      warn_once(problem_.empty() ? write_problem_ : problem_);
      return false;
    }
    // Entries get the mode that the umask leaves: an own folder that nobody else can enter keeps others from them.
    struct stat info {};
    if (::stat(entries_.c_str(), &info) == 0 && (info.st_mode & 07777 & ~kPrivateMode) != 0)
      ::chmod(entries_.c_str(), info.st_mode & kPrivateMode);
    writable_ = true;
  }
  return ready_to_read();
}

// ---- entries ---------------------------------------------------------------------------------------------------

struct DiskCache::Reading {
  enum class State { missing, bad, valid } state = State::missing;
  Image image;
  std::string reason;
};

DiskCache::Reading DiskCache::read_entry(const KernelKey& key) const {
  const fs::path path = entry_path(key.digest);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) return {};
  try {
    Entry entry = read_entry_file(path);
    if (entry.key_text != key.text()) return {Reading::State::bad, {}, "it holds another kernel's key"};
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // the time of last use; where it cannot be set, age decides
    return {Reading::State::valid, std::move(entry.image), {}};
  } catch (const Error& error) {
    return {Reading::State::bad, {}, error.what()};
  }
}

void DiskCache::drop_bad_entry(const KernelKey& key, const std::string& reason) {
  ::unlink(entry_path(key.digest).c_str());
  const std::lock_guard lock(mutex_);
  if (!reported_.insert(key.digest).second) return;
  options_.report(
      fmt::format("kernel cache: entry '{}' is dropped and built again: {}", entry_path(key.digest).string(), reason));
}

std::optional<Image> DiskCache::find(const KernelKey& key) {
  if (!ready_to_read()) return std::nullopt;
  Reading reading = read_entry(key);
  if (reading.state != Reading::State::valid) return std::nullopt;
  return std::move(reading.image);
}

bool DiskCache::contains(const KernelKey& key) {
  if (!ready_to_read()) return false;
  try {
    return read_entry_file(entry_path(key.digest)).key_text == key.text();
  } catch (const Error&) {
    return false;
  }
}

void DiskCache::drop(const KernelKey& key) {
  if (ready_to_read()) ::unlink(entry_path(key.digest).c_str());
}

DiskCache::Found DiskCache::find_or_build(const KernelKey& key, const std::function<Image()>& build) {
  const auto built = [&] {
    Image image = build();
    check(!image.empty(), ErrorCode::internal, "the compiler returned an empty image for the key {}", key.digest);
    return image;
  };
  if (std::optional<Image> image = find(key)) return {std::move(*image), true};
  if (!ready_to_write()) return {built(), false};
  std::string reason;
  const std::optional<FileLock> lock =
      FileLock::acquire(locks_ / key.digest, FileLock::Wait::yes, reason, options_.pause);
  if (!lock) {
    stop_writing(reason);
    return {built(), false};
  }
  // Whoever held the lock before has published by now. A bad entry can be dropped: nobody else writes this one.
  Reading reading = read_entry(key);
  if (reading.state == Reading::State::valid) return {std::move(reading.image), true};
  if (reading.state == Reading::State::bad) drop_bad_entry(key, reading.reason);
  Image image = built();
  publish(key, image);
  return {std::move(image), false};
}

void DiskCache::publish(const KernelKey& key, const Image& image) {
  const std::vector<std::byte> file = encode_entry({key.text(), image});
  if (file.size() > options_.max_bytes) return;  // it would be the first to be trimmed
  try {
    write_file_atomically(entry_path(key.digest), file);
  } catch (const Error& error) {
    stop_writing(error.what());
    return;
  }
  // A folder that does not keep what was just written would have every start build, drop and build again.
  const Reading reading = read_entry(key);
  if (reading.state == Reading::State::bad) {
    ::unlink(entry_path(key.digest).c_str());
    stop_writing(fmt::format("entry '{}' reads back differently: {}", entry_path(key.digest).string(), reading.reason));
    return;
  }
  remove_oldest(options_.max_bytes, false);
}

}  // namespace fourfold::cuda
