// A lock among threads and processes that dies with its holder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace fourfold::cuda {

/// An exclusive flock on a file of its own. The file is made to lock and removed to unlock; a process that is killed
/// leaves the file, but not the lock. Move-only.
class FileLock {
 public:
  enum class Wait { yes, no };
  /// Empty, with the reason in `reason`, when the file cannot be made or locked; with Wait::no also when another holds
  /// the lock (`reason` is then empty). Wait::yes blocks as long as the holder lives; a holder may be stopped, so that
  /// `pause`, unless empty, is called ten times a second meanwhile, and what it throws ends the wait.
  static std::optional<FileLock> acquire(const std::filesystem::path& path, Wait wait, std::string& reason,
                                         const std::function<void()>& pause = {});
  ~FileLock() { release(); }
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) = delete;

 private:
  FileLock(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  void release() noexcept;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace fourfold::cuda
