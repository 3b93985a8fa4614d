// Files as the library needs them: checked positional reads, read-only maps, and writes that are complete or absent.
// Every failure throws bad_input with the path and the system's error text, unless a function says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

/// A regular file opened for reading at any position. Movable. read_at is thread-safe.
class InputFile {
 public:
  InputFile() = default;
  /// Throws when the path is missing, unreadable or not a regular file (never blocks on a pipe).
  static InputFile open(const std::filesystem::path& path);
  ~InputFile() { close(); }
  InputFile(InputFile&& other) noexcept { swap(other); }
  InputFile& operator=(InputFile&& other) noexcept;
  /// Bytes when it was opened.
  std::uint64_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// Fills `bytes` from `offset` on. Throws when the file ends earlier, with both numbers.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  void close() noexcept;

 private:
  void swap(InputFile& other) noexcept;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A whole regular file mapped read-only. An empty file has size() 0 and data() null. Movable; reads are thread-safe.
/// A file that shrinks while mapped ends the process (SIGBUS): use InputFile where that may happen.
class MappedFile {
 public:
  MappedFile() = default;
  static MappedFile open(const std::filesystem::path& path);
  ~MappedFile() { close(); }
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  const std::byte* data() const noexcept { return data_; }
  std::uint64_t size() const noexcept { return size_; }
  std::span<const std::byte> span() const noexcept { return {data_, static_cast<std::size_t>(size_)}; }
  void close() noexcept;

 private:
  void swap(MappedFile& other) noexcept;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// A new file written from front to back. The destructor closes without fsync and without an error: call close().
class OutputFile {
 public:
  OutputFile() = default;
  /// Creates `path`, or truncates it when it exists.
  static OutputFile create(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept { swap(other); }
  OutputFile& operator=(OutputFile&& other) noexcept;
  /// Appends. Throws with the error text (disk full, quota, ...).
  void write(std::span<const std::byte> bytes);
  void write(const void* data, std::size_t bytes) { write({static_cast<const std::byte*>(data), bytes}); }
  std::uint64_t bytes_written() const noexcept { return bytes_written_; }
  /// fsync, then close. Throws when either fails. Once.
  void close();

 private:
  void swap(OutputFile& other) noexcept;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t bytes_written_ = 0;
};

/// Throws what write_file_atomically would throw before its first byte, and leaves nothing: for work of minutes whose
/// result would find no place. Refuses anything at `path` that is there and no regular file (a folder, /dev/null,
/// /dev/stdout), because a rename would put the file in its place. A link to a regular file is fine, and is replaced.
void check_writable(const std::filesystem::path& path);
/// Checks as above, writes aside, fsyncs, renames over `path`, fsyncs the folder. On failure `path` is as before and
/// nothing else stays.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// A folder that appears complete or not at all. Fill path(), then commit().
class AtomicFolder {
 public:
  /// Makes a temporary sibling ".<name>.partial-<pid>". Missing parents of `destination` are made; without
  /// a commit they are removed again.
  /// Throws usage when `destination` exists and is anything but an empty folder.
  explicit AtomicFolder(const std::filesystem::path& destination);
  /// Removes everything that was not committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  const std::filesystem::path& path() const noexcept { return temporary_; }
  const std::filesystem::path& destination() const noexcept { return destination_; }
  /// fsyncs every file and folder inside, renames to the destination, fsyncs the parent. Once. Throws usage when the
  /// destination got content meanwhile: the first of two writers wins.
  void commit();

 private:
  std::filesystem::path destination_, temporary_;
  std::vector<std::filesystem::path> made_parents_;  // innermost first
  bool committed_ = false;
};

/// The whole regular file. Throws when it is longer than `max_bytes`, before anything is allocated for it.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);
/// The same as text, unchecked bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Largest resident size of this process so far. Thread-safe.
std::uint64_t peak_memory_bytes() noexcept;

}  // namespace fourfold
