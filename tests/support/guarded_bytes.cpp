// Guard pages by mmap and mprotect.
#include "support/guarded_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace support {

GuardedBytes::GuardedBytes(std::uint64_t bytes, Flush flush) : bytes_(bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t middle = (bytes + page - 1) / page * page;
  mapping_bytes_ = middle + 2 * page;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::runtime_error("mmap failed");
  auto* first = static_cast<std::byte*>(mapping_) + page;
  if (middle > 0 && mprotect(first, middle, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
  data_ = flush == Flush::begin ? first : first + (middle - bytes);
  fill(0xff);
}

GuardedBytes::~GuardedBytes() { munmap(mapping_, mapping_bytes_); }

void GuardedBytes::fill(int value) {
  if (bytes_ > 0) std::memset(data_, value, bytes_);
}

}  // namespace support
