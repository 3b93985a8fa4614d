// The stand-in driver: start, errors, devices, contexts.
#include "state.h"

namespace fourfold::cuda::stand_in {
namespace {

struct ResultText {
  CUresult result;
  const char* name;
  const char* text;
};

constexpr ResultText kResults[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kStreamCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would merge two captures"},
    {kStreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"},
    {kStreamCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kStreamCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency on uncaptured work"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event recorded in a capture"},
    {kStreamCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "capture ended by another thread"},
};

const ResultText* find_result(CUresult result) {
  for (const ResultText& row : kResults)
    if (row.result == result) return &row;
  return nullptr;
}

bool exists(const State& all, int device) { return device >= 0 && device < all.device_count; }

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) {
  return logged("cuInit", text("flags=", flags), [&](State& all) {
    if (all.device_count == 0) return kNoDevice;
    all.initialised = true;
    return kSuccess;
  });
}

// Not one of ours: NVRTC asks a driver whose cuInit succeeds for tables of its own, and reads through a null pointer
// when the driver lacks even this entry. Every real driver has it, and the toolkit's stub does not start.
CUresult cuGetExportTable(const void** table, const void* id) {
  return logged("cuGetExportTable", text("id=", id), [&](State&) {
    *table = nullptr;
    return kNotFound;
  });
}

CUresult cuDriverGetVersion(int* version) {
  return logged("cuDriverGetVersion", "", [&](State&) {
    *version = 13000;
    return kSuccess;
  });
}

// The two that explain failures are neither logged nor made to fail by a missing cuInit, as in the real driver.
CUresult cuGetErrorName(CUresult result, const char** name) {
  const std::scoped_lock lock(state().mutex);
  if (const CUresult failure = take_failure(state(), "cuGetErrorName"); failure != kSuccess) return failure;
  const ResultText* row = find_result(result);
  *name = row != nullptr ? row->name : nullptr;
  return row != nullptr ? kSuccess : kInvalidValue;
}

CUresult cuGetErrorString(CUresult result, const char** string) {
  const std::scoped_lock lock(state().mutex);
  if (const CUresult failure = take_failure(state(), "cuGetErrorString"); failure != kSuccess) return failure;
  const ResultText* row = find_result(result);
  *string = row != nullptr ? row->text : nullptr;
  return row != nullptr ? kSuccess : kInvalidValue;
}

CUresult cuDeviceGetCount(int* count) {
  return logged("cuDeviceGetCount", "", [&](State& all) {
    *count = all.device_count;
    return kSuccess;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return logged("cuDeviceGet", text("ordinal=", ordinal), [&](State& all) {
    if (!exists(all, ordinal)) return kInvalidDevice;
    *device = ordinal;
    return kSuccess;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return logged("cuDeviceGetName", text("device=", device), [&](State& all) {
    if (!exists(all, device) || length <= 0) return kInvalidDevice;
    std::strncpy(name, all.devices[device]->name.c_str(), static_cast<std::size_t>(length));
    name[length - 1] = '\0';
    return kSuccess;
  });
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  return logged("cuDeviceGetAttribute", text("attribute=", attribute, " device=", device), [&](State& all) {
    if (!exists(all, device)) return kInvalidDevice;
    const auto found = all.devices[device]->attributes.find(attribute);
    if (found == all.devices[device]->attributes.end()) return kInvalidValue;
    *value = found->second;
    return kSuccess;
  });
}

CUresult cuDeviceGetPCIBusId(char* address, int size, CUdevice device) {
  return logged("cuDeviceGetPCIBusId", text("device=", device), [&](State& all) {
    if (!exists(all, device)) return kInvalidDevice;
    const std::string found = "0000:0" + std::to_string(device) + ":00.0";
    if (static_cast<std::size_t>(size) <= found.size()) return kInvalidValue;
    std::memcpy(address, found.c_str(), found.size() + 1);
    return kSuccess;
  });
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return logged("cuDeviceTotalMem_v2", text("device=", device), [&](State& all) {
    if (!exists(all, device)) return kInvalidDevice;
    *bytes = all.devices[device]->memory_bytes;
    return kSuccess;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return logged("cuDevicePrimaryCtxRetain", text("device=", device), [&](State& all) {
    if (!exists(all, device)) return kInvalidDevice;
    ++all.devices[device]->retains;
    *context = all.context_of(device);
    return kSuccess;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return logged("cuDevicePrimaryCtxRelease_v2", text("device=", device), [&](State& all) {
    if (!exists(all, device)) return kInvalidDevice;
    if (all.devices[device]->retains == 0) return kInvalidContext;
    --all.devices[device]->retains;
    return kSuccess;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return logged("cuCtxPushCurrent_v2", text("device=", context != nullptr ? context->ordinal : -1), [&](State& all) {
    if (context == nullptr || all.devices[context->ordinal]->retains == 0) return kInvalidContext;
    this_thread_state().contexts.push_back(context);
    return kSuccess;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return logged("cuCtxPopCurrent_v2", "", [&](State&) {
    auto& contexts = this_thread_state().contexts;
    if (contexts.empty()) return kInvalidContext;
    *context = contexts.back();
    contexts.pop_back();
    return kSuccess;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return logged("cuCtxGetCurrent", "", [&](State&) {
    *context = this_thread_state().current();
    return kSuccess;
  });
}
}

}  // namespace fourfold::cuda::stand_in
