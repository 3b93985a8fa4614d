// Files and folders that appear complete or not at all: written aside, fsynced, renamed (declared in core/file.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "core/check.h"
#include "core/file.h"

namespace fourfold {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_with_errno(const char* action, const fs::path& path, int error) {
  fail(ErrorCode::bad_input, "cannot {} '{}': {}", action, path.string(), std::generic_category().message(error));
}

// "a/b/" and "a/b" name the same thing; the sibling's name needs the last real component.
fs::path without_trailing_slash(const fs::path& path) {
  check(!path.empty(), ErrorCode::usage, "the name of what to write is empty; name a file or folder");
  std::error_code error;
  const fs::path normal = fs::absolute(path, error).lexically_normal();
  if (error) fail_with_errno("find the folder of", path, error.value());
  return normal.has_filename() ? normal : normal.parent_path();
}

fs::path sibling(const fs::path& path, int attempt) {
  std::string name = fmt::format(".{}.partial-{}", path.filename().string(), ::getpid());
  if (attempt > 0) name += fmt::format("-{}", attempt);
  return path.parent_path() / name;
}

// Another thread of this process, or a dead process that had our id, may hold the first names.
constexpr int kMaxAttempts = 1000;

void sync_path(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_with_errno("open", path, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL) fail_with_errno("synchronise", path, error);
}

void rename_and_sync(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    // A destination that was free at the start and has content now is refused like one that had content then.
    fail(error == ENOTEMPTY || error == EEXIST ? ErrorCode::usage : ErrorCode::bad_input,
         "cannot rename '{}' to '{}': {}; did something else write there? Name another destination", from.string(),
         to.string(), std::generic_category().message(error));
  }
  sync_path(to.parent_path());
}

// Unlinks a file unless it was renamed away.
struct TemporaryFile {
  fs::path path;
  bool armed = true;
  ~TemporaryFile() {
    if (armed) ::unlink(path.c_str());
  }
};

fs::path create_temporary_file(const fs::path& destination) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const fs::path path = sibling(destination, attempt);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      ::close(descriptor);
      return path;
    }
    if (errno != EEXIST) fail_with_errno("create", path, errno);
  }
  fail(ErrorCode::bad_input, "cannot write '{}': {} partial files lie beside it; remove them", destination.string(),
       kMaxAttempts);
}

// A rename replaces whatever has the name: root would turn a device into a file, for every process of the machine.
fs::path replaceable(const fs::path& path) {
  fs::path destination = without_trailing_slash(path);
  std::error_code error;
  const fs::file_status status = fs::status(destination, error);
  // /dev/stdout and the like are links into /proc, whatever they lead to just now.
  const bool magic_link = fs::read_symlink(destination, error).string().starts_with("/proc/");
  // A folder is none of these: a rename over it fails.
  const bool other = fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
  check(!magic_link && !other, ErrorCode::bad_input,
        "cannot write '{}': it is a device, pipe or socket; name a file", destination.string());
  return destination;
}

}  // namespace

void check_writable(const fs::path& path) {
  const fs::path destination = replaceable(path);
  std::error_code error;
  check(!fs::is_directory(destination, error), ErrorCode::bad_input, "'{}' is a folder; name a file in it",
        destination.string());
  const TemporaryFile removed_at_the_end{create_temporary_file(destination)};
}

void write_file_atomically(const fs::path& path, std::span<const std::byte> bytes) {
  const fs::path destination = replaceable(path);
  TemporaryFile temporary{create_temporary_file(destination)};
  OutputFile file = OutputFile::create(temporary.path);
  file.write(bytes);
  file.close();
  rename_and_sync(temporary.path, destination);
  temporary.armed = false;
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size())));
}

AtomicFolder::AtomicFolder(const fs::path& destination) : destination_(without_trailing_slash(destination)) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(destination_, error);
  if (fs::exists(status)) {
    check(fs::is_directory(status), ErrorCode::usage, "'{}' exists and is no folder; name another destination",
          destination_.string());
    const bool empty = fs::is_empty(destination_, error);
    if (error) fail_with_errno("read", destination_, error.value());
    check(empty, ErrorCode::usage, "'{}' exists and is not empty; name another destination or remove it",
          destination_.string());
  }
  for (fs::path folder = destination_.parent_path(); !fs::exists(folder, error) && folder.has_relative_path();
       folder = folder.parent_path())
    made_parents_.push_back(folder);
  fs::create_directories(destination_.parent_path(), error);
  if (error) fail_with_errno("create", destination_.parent_path(), error.value());
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    temporary_ = sibling(destination_, attempt);
    if (::mkdir(temporary_.c_str(), 0777) == 0) return;
    if (errno != EEXIST) fail_with_errno("create", temporary_, errno);
  }
  fail(ErrorCode::bad_input, "cannot write '{}': {} partial folders lie beside it; remove them", destination_.string(),
       kMaxAttempts);
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  for (const fs::path& folder : made_parents_) fs::remove(folder, ignored);  // innermost first, only empty ones go
}

void AtomicFolder::commit() {
  check(!committed_, ErrorCode::internal, "folder '{}' is committed twice", destination_.string());
  std::vector<fs::path> folders{temporary_};
  std::error_code error;
  fs::recursive_directory_iterator entry(temporary_, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_symlink()) continue;
    if (entry->is_directory(error)) {
      folders.push_back(entry->path());
    } else if (entry->is_regular_file(error)) {
      sync_path(entry->path());
    }
  }
  if (error) fail_with_errno("read", temporary_, error.value());
  for (const fs::path& folder : folders) sync_path(folder);
  rename_and_sync(temporary_, destination_);
  committed_ = true;
}

}  // namespace fourfold
