// The stand-in driver: memory, copies and fills.
#include <cstdlib>

#include "state.h"

namespace fourfold::cuda::stand_in {
namespace {

constexpr std::size_t kAlignment = 256;
// Fresh memory is poisoned, up to a size that costs little: nobody may lean on its content.
constexpr std::size_t kPoisonedBytes = std::size_t{16} << 20;
constexpr int kPoison = 0xA5;

void* take(std::size_t bytes) {
  void* data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data != nullptr) std::memset(data, kPoison, std::min(bytes, kPoisonedBytes));
  return data;
}

/// Whether [address, address + bytes) lies in one live allocation of device memory.
bool covered(const State& all, CUdeviceptr address, std::size_t bytes) {
  auto next = all.memory.upper_bound(address);
  if (next == all.memory.begin()) return false;
  --next;
  return address - next->first <= next->second.bytes && bytes <= next->second.bytes - (address - next->first);
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return logged("cuMemGetInfo_v2", "", [&](State& all) {
    const CUcontext context = this_thread_state().current();
    if (context == nullptr) return kInvalidContext;
    const DeviceRecord& device = *all.devices[context->ordinal];
    *total = device.memory_bytes;
    *free = device.memory_limit - std::min(device.memory_limit, device.memory_used);
    return kSuccess;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  return logged("cuMemAlloc_v2", text("bytes=", bytes), [&](State& all) {
    const CUcontext context = this_thread_state().current();
    if (context == nullptr) return kInvalidContext;
    if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    if (bytes == 0) return kInvalidValue;
    DeviceRecord& device = *all.devices[context->ordinal];
    if (device.memory_used > device.memory_limit || bytes > device.memory_limit - device.memory_used)
      return kOutOfMemory;
    void* data = take(bytes);
    if (data == nullptr) return kOutOfMemory;
    device.memory_used += bytes;
    *address = reinterpret_cast<CUdeviceptr>(data);
    all.memory[*address] = {bytes, context->ordinal};
    return kSuccess;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return logged("cuMemFree_v2", text("address=", address), [&](State& all) {
    if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    const auto found = all.memory.find(address);
    if (found == all.memory.end()) return kInvalidValue;
    all.devices[found->second.device]->memory_used -= found->second.bytes;
    all.memory.erase(found);
    std::free(pointer(address));
    return kSuccess;
  });
}

CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned int flags) {
  return logged("cuMemHostAlloc", text("bytes=", bytes, " flags=", flags), [&](State& all) {
    if (this_thread_state().current() == nullptr) return kInvalidContext;
    if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    if (bytes == 0) return kInvalidValue;
    *address = take(bytes);
    if (*address == nullptr) return kOutOfMemory;
    all.host[reinterpret_cast<std::uintptr_t>(*address)] = {bytes, 0};
    return kSuccess;
  });
}

CUresult cuMemFreeHost(void* address) {
  return logged("cuMemFreeHost", text("address=", address), [&](State& all) {
    if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    if (all.host.erase(reinterpret_cast<std::uintptr_t>(address)) == 0) return kInvalidValue;
    std::free(address);
    return kSuccess;
  });
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, std::size_t bytes, CUstream stream) {
  const std::string arguments = text("target=", target, " source=", source, " bytes=", bytes, " stream=", stream);
  return logged("cuMemcpyHtoDAsync_v2", arguments, [&](State& all) {
    if (!covered(all, target, bytes)) return kInvalidValue;
    return submit(all, stream,
                  {"cuMemcpyHtoDAsync_v2", arguments, [=] { std::memcpy(pointer(target), source, bytes); }});
  });
}

CUresult cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  const std::string arguments = text("target=", target, " source=", source, " bytes=", bytes, " stream=", stream);
  return logged("cuMemcpyDtoHAsync_v2", arguments, [&](State& all) {
    if (!covered(all, source, bytes)) return kInvalidValue;
    return submit(all, stream,
                  {"cuMemcpyDtoHAsync_v2", arguments, [=] { std::memcpy(target, pointer(source), bytes); }});
  });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  const std::string arguments = text("target=", target, " source=", source, " bytes=", bytes, " stream=", stream);
  return logged("cuMemcpyDtoDAsync_v2", arguments, [&](State& all) {
    if (!covered(all, source, bytes) || !covered(all, target, bytes)) return kInvalidValue;
    return submit(all, stream,
                  {"cuMemcpyDtoDAsync_v2", arguments, [=] { std::memmove(pointer(target), pointer(source), bytes); }});
  });
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, std::size_t bytes, CUstream stream) {
  const std::string arguments = text("target=", target, " value=", int{value}, " bytes=", bytes, " stream=", stream);
  return logged("cuMemsetD8Async", arguments, [&](State& all) {
    if (!covered(all, target, bytes)) return kInvalidValue;
    return submit(all, stream, {"cuMemsetD8Async", arguments, [=] { std::memset(pointer(target), value, bytes); }});
  });
}
}

}  // namespace fourfold::cuda::stand_in
