// The CUDA driver, opened at run time: one table of its entry points, and calls that are checked.
// Names, parameters and values are those of the CUDA Driver API reference, whose ABI only grows: a name carries its
// version, so no header of CUDA is needed to build, and one build runs with and without a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/dynamic_library.h"
#include "fourfold/error.h"

namespace fourfold::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphNode = struct CUgraphNode_st*;

// CUresult: those that are told apart here.
inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kInvalidValue = 1;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNotInitialized = 3;
inline constexpr CUresult kDeinitialized = 4;
inline constexpr CUresult kStubLibrary = 34;
inline constexpr CUresult kDeviceUnavailable = 46;
inline constexpr CUresult kNoDevice = 100;
inline constexpr CUresult kInvalidDevice = 101;
inline constexpr CUresult kInvalidImage = 200;
inline constexpr CUresult kInvalidContext = 201;
inline constexpr CUresult kNoBinaryForGpu = 209;
inline constexpr CUresult kInvalidHandle = 400;
inline constexpr CUresult kIllegalState = 401;
inline constexpr CUresult kNotFound = 500;
inline constexpr CUresult kNotReady = 600;
inline constexpr CUresult kSystemNotReady = 802;
inline constexpr CUresult kSystemDriverMismatch = 803;
inline constexpr CUresult kCompatNotSupportedOnDevice = 804;
inline constexpr CUresult kStreamCaptureUnsupported = 900;
inline constexpr CUresult kStreamCaptureInvalidated = 901;
inline constexpr CUresult kStreamCaptureMerge = 902;
inline constexpr CUresult kStreamCaptureUnmatched = 903;
inline constexpr CUresult kStreamCaptureUnjoined = 904;
inline constexpr CUresult kStreamCaptureIsolation = 905;
inline constexpr CUresult kStreamCaptureImplicit = 906;
inline constexpr CUresult kCapturedEvent = 907;
inline constexpr CUresult kStreamCaptureWrongThread = 908;

// CUdevice_attribute
inline constexpr int kAttributeClockKhz = 13;
inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeMemoryClockKhz = 36;
inline constexpr int kAttributeMemoryBusBits = 37;
inline constexpr int kAttributeL2Bytes = 38;
inline constexpr int kAttributeComputeMajor = 75;
inline constexpr int kAttributeComputeMinor = 76;
inline constexpr int kAttributeSharedBytesOptin = 97;

// CUfunction_attribute
inline constexpr int kFunctionMaxThreads = 0;
inline constexpr int kFunctionSharedBytes = 1;
inline constexpr int kFunctionLocalBytes = 3;
inline constexpr int kFunctionRegisters = 4;
inline constexpr int kFunctionMaxDynamicSharedBytes = 8;

inline constexpr unsigned int kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
inline constexpr unsigned int kEventTimed = 0;          // CU_EVENT_DEFAULT
inline constexpr unsigned int kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned int kHostMemoryPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE

// CUstreamCaptureStatus
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureActive = 1;
inline constexpr int kCaptureInvalidated = 2;
/// CUstreamCaptureMode: which unsafe calls of which threads a capture forbids.
enum class CaptureMode : int { global = 0, thread_local_mode = 1, relaxed = 2 };

// Every entry point we use: our name, the driver's symbol, its parameters.
#define FOURFOLD_CUDA_ENTRY_POINTS(X)                                                                                \
  X(init, cuInit, unsigned int)                                                                                      \
  X(driver_get_version, cuDriverGetVersion, int*)                                                                    \
  X(get_error_name, cuGetErrorName, CUresult, const char**)                                                          \
  X(get_error_string, cuGetErrorString, CUresult, const char**)                                                      \
  X(device_get_count, cuDeviceGetCount, int*)                                                                        \
  X(device_get, cuDeviceGet, CUdevice*, int)                                                                         \
  X(device_get_name, cuDeviceGetName, char*, int, CUdevice)                                                          \
  X(device_get_attribute, cuDeviceGetAttribute, int*, int, CUdevice)                                                 \
  X(device_total_mem, cuDeviceTotalMem_v2, std::size_t*, CUdevice)                                                   \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)                                              \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, CUdevice)                                                     \
  X(ctx_push_current, cuCtxPushCurrent_v2, CUcontext)                                                                \
  X(ctx_pop_current, cuCtxPopCurrent_v2, CUcontext*)                                                                 \
  X(ctx_get_current, cuCtxGetCurrent, CUcontext*)                                                                    \
  X(mem_get_info, cuMemGetInfo_v2, std::size_t*, std::size_t*)                                                       \
  X(mem_alloc, cuMemAlloc_v2, CUdeviceptr*, std::size_t)                                                             \
  X(mem_free, cuMemFree_v2, CUdeviceptr)                                                                             \
  X(mem_host_alloc, cuMemHostAlloc, void**, std::size_t, unsigned int)                                               \
  X(mem_free_host, cuMemFreeHost, void*)                                                                             \
  X(memcpy_to_device, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, std::size_t, CUstream)                         \
  X(memcpy_to_host, cuMemcpyDtoHAsync_v2, void*, CUdeviceptr, std::size_t, CUstream)                                 \
  X(memcpy_on_device, cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, std::size_t, CUstream)                         \
  X(memset_bytes, cuMemsetD8Async, CUdeviceptr, unsigned char, std::size_t, CUstream)                                \
  X(stream_create, cuStreamCreate, CUstream*, unsigned int)                                                          \
  X(stream_destroy, cuStreamDestroy_v2, CUstream)                                                                    \
  X(stream_synchronize, cuStreamSynchronize, CUstream)                                                               \
  X(stream_wait_event, cuStreamWaitEvent, CUstream, CUevent, unsigned int)                                           \
  X(stream_is_capturing, cuStreamIsCapturing, CUstream, int*)                                                        \
  X(stream_begin_capture, cuStreamBeginCapture_v2, CUstream, int)                                                    \
  X(stream_end_capture, cuStreamEndCapture, CUstream, CUgraph*)                                                      \
  X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, int*)                                           \
  X(event_create, cuEventCreate, CUevent*, unsigned int)                                                             \
  X(event_destroy, cuEventDestroy_v2, CUevent)                                                                       \
  X(event_record, cuEventRecord, CUevent, CUstream)                                                                  \
  X(event_synchronize, cuEventSynchronize, CUevent)                                                                  \
  X(event_elapsed_time, cuEventElapsedTime, float*, CUevent, CUevent)                                                \
  X(module_load_data, cuModuleLoadData, CUmodule*, const void*)                                                      \
  X(module_unload, cuModuleUnload, CUmodule)                                                                         \
  X(module_get_function, cuModuleGetFunction, CUfunction*, CUmodule, const char*)                                    \
  X(func_get_attribute, cuFuncGetAttribute, int*, int, CUfunction)                                                   \
  X(func_set_attribute, cuFuncSetAttribute, CUfunction, int, int)                                                    \
  X(launch_kernel, cuLaunchKernel, CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
    unsigned int, unsigned int, CUstream, void**, void**)                                                            \
  X(graph_get_nodes, cuGraphGetNodes, CUgraph, CUgraphNode*, std::size_t*)                                           \
  X(graph_instantiate, cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)                       \
  X(graph_launch, cuGraphLaunch, CUgraphExec, CUstream)                                                              \
  X(graph_exec_destroy, cuGraphExecDestroy, CUgraphExec)                                                             \
  X(graph_destroy, cuGraphDestroy, CUgraph)

// Entry points that a driver may lack: null where it has none.
// cuFuncLoad (12.4): finishes what lazy loading left for the first launch, which could be inside a capture.
// cuDeviceGetPCIBusId: the device's address, by which the management library knows it.
#define FOURFOLD_CUDA_OPTIONAL_ENTRY_POINTS(X) \
  X(func_load, cuFuncLoad, CUfunction)         \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, char*, int, CUdevice)

/// One function of the driver.
template <class... Parameters>
struct EntryPoint {
  const char* name;
  CUresult (*function)(Parameters...) = nullptr;
};

struct EntryPoints {
#define FOURFOLD_DECLARE(member, symbol, ...) EntryPoint<__VA_ARGS__> member{#symbol};
  FOURFOLD_CUDA_ENTRY_POINTS(FOURFOLD_DECLARE)
  FOURFOLD_CUDA_OPTIONAL_ENTRY_POINTS(FOURFOLD_DECLARE)
#undef FOURFOLD_DECLARE
};

/// Whose fault a result is: unavailable (no driver, no device, no memory), usage (a call that a stream capture
/// forbids), else internal. Pure.
ErrorCode error_code(CUresult result) noexcept;

/// The loader's name of the driver on Linux.
inline constexpr const char* kDriverLibrary = "libcuda.so.1";

/// An initialised driver. Immutable, thread-safe.
class DriverApi : public EntryPoints {
 public:
  /// Opens `library` (a name or a path), resolves every entry point and initialises the driver.
  /// Throws unavailable with the reason: no library, an entry point that it lacks, or the driver's own refusal.
  static std::shared_ptr<const DriverApi> open(const std::string& library = kDriverLibrary);

  /// Calls `entry` and throws on any result but success: Error{error_code(result)} with the call, the device
  /// (-1: none), and the driver's name and text of the result.
  template <class... Parameters, class... Arguments>
  void call(const EntryPoint<Parameters...>& entry, int device, Arguments... arguments) const {
    check_result(entry, device, entry.function(arguments...));
  }
  /// The check of call(), for a result that the caller looked at first.
  template <class... Parameters>
  void check_result(const EntryPoint<Parameters...>& entry, int device, CUresult result) const {
    if (result != kSuccess) fail_call(entry.name, device, result);
  }
  /// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", or the number where the driver has no name.
  std::string result_text(CUresult result) const;
  /// 1000 * major + 10 * minor of the newest CUDA that the driver runs: 12040 is 12.4.
  int version() const noexcept { return version_; }
  const std::string& library_path() const noexcept { return library_.path(); }

 private:
  explicit DriverApi(DynamicLibrary library) : library_(std::move(library)) {}
  void resolve();
  [[noreturn]] void fail_call(const char* call, int device, CUresult result) const;

  DynamicLibrary library_;
  int version_ = 0;
};

/// A driver, or why there is none.
struct DriverOpening {
  std::shared_ptr<const DriverApi> driver;  ///< null when there is none
  std::string reason;                       ///< empty when there is one
};
/// DriverApi::open that returns the reason instead of throwing it.
DriverOpening try_open_driver(const std::string& library = kDriverLibrary);

}  // namespace fourfold::cuda
