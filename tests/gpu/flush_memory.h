// Device memory whose last byte is the last one that is mapped: an access behind it is an error of the device, without
// any sanitizer. By the driver's virtual memory management; what the library calls cuMemAlloc for can be placed so.
#pragma once

#include <cstdint>

#include "cuda/driver_api.h"

namespace fourfold::gpu_test {

/// How a tensor of `bytes` bytes lies in its reservation: unmapped | mapped | unmapped, flush with the end of mapped.
struct FlushLayout {
  std::uint64_t mapped_bytes = 0;  ///< a multiple of the granularity, at least `bytes`
  std::uint64_t offset_bytes = 0;  ///< of the tensor in the mapped range: a multiple of `alignment`
};
/// `granularity` and `alignment` are powers of two. Pure.
FlushLayout flush_layout(std::uint64_t bytes, std::uint64_t granularity, std::uint64_t alignment);

/// While one lives, cuMemAlloc calls of this thread through the counting driver give memory that ends where the
/// mapping ends, aligned to `alignment`. With plain_allocations() they stay as they are: exact, for memcheck.
class FlushAllocations {
 public:
  explicit FlushAllocations(std::uint64_t alignment);
  ~FlushAllocations();
  FlushAllocations(const FlushAllocations&) = delete;
  FlushAllocations& operator=(const FlushAllocations&) = delete;

 private:
  std::uint64_t before_;
};
/// Whether one lives on this thread.
bool allocations_are_flush();
/// Set by the program before the first test.
bool& plain_allocations();
/// Whether the driver can do it. Pure after install_flush_allocations.
bool flush_memory_available();

/// Puts the two functions into a driver's table; once, before counting ones. GPU 0 only.
void install_flush_allocations(cuda::DriverApi& driver);

}  // namespace fourfold::gpu_test
