// flock on a file that comes and goes.
#include "cuda/jit/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace fourfold::cuda {
namespace {

std::string failure(const char* action, const std::filesystem::path& path, int error) {
  return fmt::format("cannot {} '{}': {}", action, path.string(), std::generic_category().message(error));
}

// The holder before us removed the file to unlock it: our lock is on a file that nobody will find any more.
bool is_current(int descriptor, const std::filesystem::path& path) {
  struct stat ours {
  }, named{};
  return ::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}

// Closes unless it is taken away.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// 0, or errno of flock.
int lock_exclusively(int descriptor, bool wait, const std::function<void()>& pause) {
  constexpr useconds_t kPauseMicroseconds = 100'000;
  const bool blocking = wait && !pause;
  while (::flock(descriptor, LOCK_EX | (blocking ? 0 : LOCK_NB)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || !wait) return errno;
    pause();
    ::usleep(kPauseMicroseconds);
  }
  return 0;
}

}  // namespace

std::optional<FileLock> FileLock::acquire(const std::filesystem::path& path, Wait wait, std::string& reason,
                                          const std::function<void()>& pause) {
  reason.clear();
  while (true) {
    Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (file.value < 0) {
      reason = failure("create the lock", path, errno);
      return std::nullopt;
    }
    if (const int error = lock_exclusively(file.value, wait == Wait::yes, pause); error != 0) {
      if (error != EWOULDBLOCK) reason = failure("lock", path, error);
      return std::nullopt;
    }
    if (is_current(file.value, path)) return FileLock(path, std::exchange(file.value, -1));
  }
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void FileLock::release() noexcept {
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  // A child that was forked meanwhile shares the lock; closing alone would leave it locked as long as the child lives.
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace fourfold::cuda
