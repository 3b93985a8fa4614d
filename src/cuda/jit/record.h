// Sealed files: a magic word, fields with lengths, and a digest of everything before it. One flipped, missing or added
// byte anywhere is noticed. Numbers are little-endian, 64 bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold::cuda {

/// Builds a sealed file in memory.
class RecordWriter {
 public:
  /// `magic` has 8 characters and names kind and version of the file.
  explicit RecordWriter(std::string_view magic);
  void number(std::uint64_t value);
  void text(std::string_view value);
  void bytes(std::span<const std::byte> value);
  /// Appends the digest and gives the file away. Once.
  std::vector<std::byte> seal();

 private:
  void append(const void* data, std::size_t size);
  std::vector<std::byte> file_;
};

/// Reads a sealed file; a view, so `file` must outlive it and what it returns. Every failure throws bad_input that says
/// what is wrong, without a path: the caller knows it.
class RecordReader {
 public:
  /// Checks magic and digest.
  RecordReader(std::span<const std::byte> file, std::string_view magic);
  std::uint64_t number();
  std::string_view text();
  std::span<const std::byte> bytes();
  /// A number of things of which each takes at least `least_bytes`: what cannot fit into the file is refused here,
  /// before anybody allocates for it.
  std::size_t count(std::size_t least_bytes);
  /// Throws when fields are left over.
  void finish() const;

 private:
  std::span<const std::byte> take(std::uint64_t size);
  std::span<const std::byte> rest_;
};

}  // namespace fourfold::cuda
