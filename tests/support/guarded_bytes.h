// Bytes between two pages that nobody may touch: one step outside ends the test program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace support {

enum class Flush { begin, end };  // which end of the bytes touches its guard page exactly

/// `bytes` bytes, filled with 0xff. Flush::end starts wherever the size puts it: pass a multiple of the alignment.
class GuardedBytes {
 public:
  GuardedBytes(std::uint64_t bytes, Flush flush);
  ~GuardedBytes();
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, static_cast<std::size_t>(bytes_)}; }
  void fill(int value);

 private:
  void* mapping_ = nullptr;
  std::uint64_t mapping_bytes_ = 0, bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace support
