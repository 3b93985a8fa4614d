// One safetensors file: its header checked whole before anything is used, its data by mapping or by plain reads.
// Source: the safetensors format (github.com/safetensors/safetensors, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fourfold/model.h"
#include "fourfold/tensor.h"

namespace fourfold {

/// Largest header that is read, as in the reference reader. A file with more than about a million tensors may need
/// more: raise it by the `max_header_bytes` argument below.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// One tensor of a file. Offsets count from the first byte of the data section.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
  std::uint64_t bytes() const noexcept { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by name, names unique
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;  ///< offset of the data section in the file
};

/// Checks and parses a header. `prefix` is the start of the file: the length word and at least the whole header when
/// `file_size` allows one. `file` names the file in messages. Accepted: any order of entries, empty and scalar
/// tensors, any alignment. The ranges, sorted, start at 0, touch, and end at the end of the file.
/// Throws bad_input naming file, tensor, value and bound. Pure; nothing is allocated from an unchecked number.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix, std::uint64_t file_size,
                                           std::string_view file,
                                           std::uint64_t max_header_bytes = kMaxSafetensorsHeaderBytes);

class InputFile;
class MappedFile;

/// An open file. Immutable and thread-safe after open().
class SafetensorsFile {
 public:
  /// Reads and checks the header only. `memory_map`: data is mapped, else read on demand. Throws bad_input.
  static std::unique_ptr<SafetensorsFile> open(const std::string& path, bool memory_map,
                                               std::uint64_t max_header_bytes = kMaxSafetensorsHeaderBytes);
  ~SafetensorsFile();
  const SafetensorsHeader& header() const noexcept { return header_; }
  const std::string& path() const noexcept { return path_; }
  /// Copies `out.size()` bytes of the entry from byte `offset` of the tensor. Throws bad_input past the tensor's end
  /// and when the file has shrunk since open().
  void read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;
  /// The entry's bytes in the mapping, of any alignment, or an empty span without one (or for an empty tensor). Throws
  /// bad_input when the file has shrunk since open(). Valid as long as this object.
  std::span<const std::byte> mapped(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile() = default;
  void check_not_shrunk(const SafetensorsEntry& entry) const;
  std::string path_;
  SafetensorsHeader header_;
  std::uint64_t file_size_ = 0;
  std::unique_ptr<InputFile> input_;
  std::unique_ptr<MappedFile> mapping_;
};

}  // namespace fourfold
