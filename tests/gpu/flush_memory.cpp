// Names, parameters and values as in the CUDA Driver API reference, section Virtual Memory Management.
#include "gpu/flush_memory.h"

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "core/dynamic_library.h"

namespace fourfold::gpu_test {
namespace {

using cuda::CUdeviceptr;
using cuda::CUresult;
using AllocationHandle = unsigned long long;  // CUmemGenericAllocationHandle

struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
struct AllocationProperties {  // CUmemAllocationProp
  int type = 1;                // CU_MEM_ALLOCATION_TYPE_PINNED
  int requested_handle_types = 0;
  Location location;
  void* win32_handle_meta_data = nullptr;
  struct {
    unsigned char compression_type = 0, gpu_direct_rdma_capable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
static_assert(sizeof(AllocationProperties) == 32);
struct AccessDescription {  // CUmemAccessDesc
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static_assert(sizeof(AccessDescription) == 12);

/// The driver's calls, and what was made with them.
struct VirtualMemory {
  CUresult (*granularity)(std::size_t*, const AllocationProperties*, int) = nullptr;
  CUresult (*reserve)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long) = nullptr;
  CUresult (*free_reserved)(CUdeviceptr, std::size_t) = nullptr;
  CUresult (*create)(AllocationHandle*, std::size_t, const AllocationProperties*, unsigned long long) = nullptr;
  CUresult (*release)(AllocationHandle) = nullptr;
  CUresult (*map)(CUdeviceptr, std::size_t, std::size_t, AllocationHandle, unsigned long long) = nullptr;
  CUresult (*unmap)(CUdeviceptr, std::size_t) = nullptr;
  CUresult (*set_access)(CUdeviceptr, std::size_t, const AccessDescription*, std::size_t) = nullptr;

  struct Range {
    CUdeviceptr reserved = 0, mapped = 0;
    std::size_t reserved_bytes = 0, mapped_bytes = 0;
    AllocationHandle handle = 0;
  };
  std::mutex mutex;
  std::map<CUdeviceptr, Range> ranges;  // by the tensor's address

  CUresult allocate(CUdeviceptr* data, std::size_t bytes, std::size_t alignment);
  /// Nothing when the address is none of ours.
  std::optional<CUresult> free(CUdeviceptr data);
};

VirtualMemory& virtual_memory() {
  static VirtualMemory memory;
  return memory;
}

CUresult VirtualMemory::allocate(CUdeviceptr* data, std::size_t bytes, std::size_t alignment) {
  const AllocationProperties properties;
  std::size_t unit = 0;
  if (const CUresult result = granularity(&unit, &properties, 0); result != cuda::kSuccess) return result;
  const FlushLayout layout = flush_layout(bytes, unit, alignment);
  Range range;
  range.mapped_bytes = layout.mapped_bytes;
  range.reserved_bytes = layout.mapped_bytes + 2 * unit;
  if (const CUresult result = reserve(&range.reserved, range.reserved_bytes, 0, 0, 0); result != cuda::kSuccess)
    return result;
  range.mapped = range.reserved + unit;
  CUresult result = create(&range.handle, range.mapped_bytes, &properties, 0);
  if (result == cuda::kSuccess) {
    const AccessDescription access;
    result = map(range.mapped, range.mapped_bytes, 0, range.handle, 0);
    if (result == cuda::kSuccess) {
      result = set_access(range.mapped, range.mapped_bytes, &access, 1);
      if (result != cuda::kSuccess) unmap(range.mapped, range.mapped_bytes);
    }
    if (result != cuda::kSuccess) release(range.handle);
  }
  if (result != cuda::kSuccess) {
    free_reserved(range.reserved, range.reserved_bytes);
    return result;
  }
  *data = range.mapped + layout.offset_bytes;
  const std::scoped_lock lock(mutex);
  ranges.emplace(*data, range);
  return cuda::kSuccess;
}

std::optional<CUresult> VirtualMemory::free(CUdeviceptr data) {
  Range range;
  {
    const std::scoped_lock lock(mutex);
    const auto found = ranges.find(data);
    if (found == ranges.end()) return std::nullopt;
    range = found->second;
    ranges.erase(found);
  }
  CUresult first = cuda::kSuccess;
  for (const CUresult result : {unmap(range.mapped, range.mapped_bytes), release(range.handle),
                                free_reserved(range.reserved, range.reserved_bytes)})
    if (first == cuda::kSuccess) first = result;
  return first;
}

thread_local std::uint64_t alignment_wanted = 0;  // 0: as the driver does it

CUresult (*plain_alloc)(CUdeviceptr*, std::size_t) = nullptr;
CUresult (*plain_free)(CUdeviceptr) = nullptr;

CUresult allocate_flush(CUdeviceptr* data, std::size_t bytes) {
  if (alignment_wanted == 0 || plain_allocations() || !flush_memory_available()) return plain_alloc(data, bytes);
  return virtual_memory().allocate(data, bytes, alignment_wanted);
}

CUresult free_flush(CUdeviceptr data) {
  if (const auto result = virtual_memory().free(data)) return *result;
  return plain_free(data);
}

template <class Function>
void find(const DynamicLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.find_symbol(name));
}

}  // namespace

FlushLayout flush_layout(std::uint64_t bytes, std::uint64_t granularity, std::uint64_t alignment) {
  FlushLayout layout;
  const std::uint64_t occupied = (bytes + alignment - 1) / alignment * alignment;
  layout.mapped_bytes = (occupied + granularity - 1) / granularity * granularity;
  layout.offset_bytes = layout.mapped_bytes - occupied;
  return layout;
}

FlushAllocations::FlushAllocations(std::uint64_t alignment) : before_(alignment_wanted) {
  alignment_wanted = alignment;
}
FlushAllocations::~FlushAllocations() { alignment_wanted = before_; }

bool allocations_are_flush() { return alignment_wanted != 0; }

bool& plain_allocations() {
  static bool plain = false;
  return plain;
}

bool flush_memory_available() {
  const VirtualMemory& memory = virtual_memory();
  return memory.granularity != nullptr && memory.reserve != nullptr && memory.free_reserved != nullptr &&
         memory.create != nullptr && memory.release != nullptr && memory.map != nullptr && memory.unmap != nullptr &&
         memory.set_access != nullptr;
}

void install_flush_allocations(cuda::DriverApi& driver) {
  const DynamicLibrary library = DynamicLibrary::open(std::array{driver.library_path()});  // open already: stays so
  VirtualMemory& memory = virtual_memory();
  find(library, "cuMemGetAllocationGranularity", memory.granularity);
  find(library, "cuMemAddressReserve", memory.reserve);
  find(library, "cuMemAddressFree", memory.free_reserved);
  find(library, "cuMemCreate", memory.create);
  find(library, "cuMemRelease", memory.release);
  find(library, "cuMemMap", memory.map);
  find(library, "cuMemUnmap", memory.unmap);
  find(library, "cuMemSetAccess", memory.set_access);
  plain_alloc = driver.mem_alloc.function;
  plain_free = driver.mem_free.function;
  driver.mem_alloc.function = allocate_flush;
  driver.mem_free.function = free_flush;
}

}  // namespace fourfold::gpu_test
