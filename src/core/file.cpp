// Checked reads and maps, and plain output files (POSIX).
#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace fourfold {
namespace {

// Linux transfers at most 0x7ffff000 bytes per call; smaller pieces keep one call's time short.
constexpr std::size_t kMaxTransferBytes = std::size_t{1} << 30;

[[noreturn]] void fail_with_errno(const char* action, const std::filesystem::path& path, int error) {
  fail(ErrorCode::bad_input, "cannot {} '{}': {}", action, path.string(), std::generic_category().message(error));
}

// Opens a regular file; O_NONBLOCK keeps the open of a pipe without a writer from waiting for ever.
int open_regular(const std::filesystem::path& path, std::uint64_t& size) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_with_errno("open", path, errno);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    const int error = errno;
    ::close(descriptor);
    fail_with_errno("stat", path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(descriptor);
    fail(ErrorCode::bad_input, "cannot read '{}': it is {}, not a regular file", path.string(),
         S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket");
  }
  size = static_cast<std::uint64_t>(info.st_size);
  return descriptor;
}

}  // namespace

// ---- InputFile -------------------------------------------------------------------------------------------------

InputFile InputFile::open(const std::filesystem::path& path) {
  InputFile file;
  file.path_ = path;
  file.descriptor_ = open_regular(path, file.size_);
  return file;
}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  swap(other);
  return *this;
}

void InputFile::swap(InputFile& other) noexcept {
  path_.swap(other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
}

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  check(descriptor_ >= 0, ErrorCode::internal, "read from a closed file '{}'", path_.string());
  constexpr std::uint64_t kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  check(offset <= kMaxOffset && bytes.size() <= kMaxOffset - offset, ErrorCode::bad_input,
        "cannot read '{}': {} bytes at {} lie beyond any file", path_.string(), bytes.size(), offset);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(descriptor_, bytes.data() + done, std::min(bytes.size() - done, kMaxTransferBytes),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno("read", path_, errno);
    if (got == 0)
      fail(ErrorCode::bad_input, "cannot read '{}': it ends at byte {}, but {} bytes at {} were expected",
           path_.string(), offset + done, bytes.size(), offset);
    done += static_cast<std::size_t>(got);
  }
}

void InputFile::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

// ---- MappedFile ------------------------------------------------------------------------------------------------

MappedFile MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  std::uint64_t size = 0;
  const int descriptor = open_regular(path, size);
  if (size == 0) {  // mmap refuses an empty range
    ::close(descriptor);
    return file;
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) fail_with_errno("map", path, error);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  swap(other);
  return *this;
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

void MappedFile::close() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

// ---- OutputFile ------------------------------------------------------------------------------------------------

OutputFile OutputFile::create(const std::filesystem::path& path) {
  OutputFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.descriptor_ < 0) fail_with_errno("create", path, errno);
  return file;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  swap(other);
  return *this;
}

void OutputFile::swap(OutputFile& other) noexcept {
  path_.swap(other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_written_, other.bytes_written_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  check(descriptor_ >= 0, ErrorCode::internal, "write to a closed file '{}'", path_.string());
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(descriptor_, bytes.data() + done, std::min(bytes.size() - done, kMaxTransferBytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_with_errno("write", path_, errno);
    done += static_cast<std::size_t>(put);
  }
  bytes_written_ += bytes.size();
}

void OutputFile::close() {
  check(descriptor_ >= 0, ErrorCode::internal, "close of a closed file '{}'", path_.string());
  const int descriptor = std::exchange(descriptor_, -1);
  // EINVAL: a device that cannot be synchronised, such as /dev/null, holds nothing that could be lost.
  const int sync_error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  const int close_error = ::close(descriptor) == 0 ? 0 : errno;
  if (sync_error != 0) fail_with_errno("write", path_, sync_error);
  if (close_error != 0) fail_with_errno("close", path_, close_error);
}

// ---- whole files and the process -------------------------------------------------------------------------------

namespace {

template <class Bytes>
Bytes read_whole(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const InputFile file = InputFile::open(path);
  check(file.size() <= max_bytes, ErrorCode::bad_input, "'{}' has {} bytes; at most {} are accepted here",
        path.string(), file.size(), max_bytes);
  Bytes bytes(static_cast<std::size_t>(file.size()), {});
  file.read_at(0, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  return bytes;
}

}  // namespace

std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return read_whole<std::vector<std::byte>>(path, max_bytes);
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return read_whole<std::string>(path, max_bytes);
}

std::uint64_t peak_memory_bytes() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // Linux counts KiB
}

}  // namespace fourfold
