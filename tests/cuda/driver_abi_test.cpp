// The declarations of cuda/driver_api.h against NVIDIA's own header, on machines that have it.
#include <gtest/gtest.h>

#include "cuda/driver_api.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

namespace {

namespace ours = fourfold::cuda;

template <class Ours, class Theirs>
constexpr bool same_size_kind = sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

/// Same number of parameters, each of the same size and passed alike. Types only: nothing links with the driver.
template <class Ours, class Theirs>
struct SameParameters;
template <class... Ours, class... Theirs>
struct SameParameters<ours::EntryPoint<Ours...>, CUresult(Theirs...)> {
  static constexpr bool value() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs))
      return false;
    else
      return (same_size_kind<Ours, Theirs> && ...);
  }
};

#define FOURFOLD_SAME(member, symbol) \
  EXPECT_TRUE((SameParameters<decltype(ours::EntryPoints::member), decltype(::symbol)>::value())) << #symbol

TEST(DriverAbi, ParametersAreThoseOfTheHeader) {
  FOURFOLD_SAME(init, cuInit);
  FOURFOLD_SAME(driver_get_version, cuDriverGetVersion);
  FOURFOLD_SAME(get_error_name, cuGetErrorName);
  FOURFOLD_SAME(get_error_string, cuGetErrorString);
  FOURFOLD_SAME(device_get_count, cuDeviceGetCount);
  FOURFOLD_SAME(device_get, cuDeviceGet);
  FOURFOLD_SAME(device_get_name, cuDeviceGetName);
  FOURFOLD_SAME(device_get_attribute, cuDeviceGetAttribute);
  FOURFOLD_SAME(device_total_mem, cuDeviceTotalMem_v2);
  FOURFOLD_SAME(device_get_pci_bus_id, cuDeviceGetPCIBusId);
  FOURFOLD_SAME(primary_ctx_retain, cuDevicePrimaryCtxRetain);
  FOURFOLD_SAME(primary_ctx_release, cuDevicePrimaryCtxRelease_v2);
  FOURFOLD_SAME(ctx_push_current, cuCtxPushCurrent_v2);
  FOURFOLD_SAME(ctx_pop_current, cuCtxPopCurrent_v2);
  FOURFOLD_SAME(ctx_get_current, cuCtxGetCurrent);
  FOURFOLD_SAME(mem_get_info, cuMemGetInfo_v2);
  FOURFOLD_SAME(mem_alloc, cuMemAlloc_v2);
  FOURFOLD_SAME(mem_free, cuMemFree_v2);
  FOURFOLD_SAME(mem_host_alloc, cuMemHostAlloc);
  FOURFOLD_SAME(mem_free_host, cuMemFreeHost);
  FOURFOLD_SAME(memcpy_to_device, cuMemcpyHtoDAsync_v2);
  FOURFOLD_SAME(memcpy_to_host, cuMemcpyDtoHAsync_v2);
  FOURFOLD_SAME(memcpy_on_device, cuMemcpyDtoDAsync_v2);
  FOURFOLD_SAME(memset_bytes, cuMemsetD8Async);
  FOURFOLD_SAME(stream_create, cuStreamCreate);
  FOURFOLD_SAME(stream_destroy, cuStreamDestroy_v2);
  FOURFOLD_SAME(stream_synchronize, cuStreamSynchronize);
  FOURFOLD_SAME(stream_wait_event, cuStreamWaitEvent);
  FOURFOLD_SAME(stream_is_capturing, cuStreamIsCapturing);
  FOURFOLD_SAME(stream_begin_capture, cuStreamBeginCapture_v2);
  FOURFOLD_SAME(stream_end_capture, cuStreamEndCapture);
  FOURFOLD_SAME(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
  FOURFOLD_SAME(event_create, cuEventCreate);
  FOURFOLD_SAME(event_destroy, cuEventDestroy_v2);
  FOURFOLD_SAME(event_record, cuEventRecord);
  FOURFOLD_SAME(event_synchronize, cuEventSynchronize);
  FOURFOLD_SAME(module_load_data, cuModuleLoadData);
  FOURFOLD_SAME(module_unload, cuModuleUnload);
  FOURFOLD_SAME(module_get_function, cuModuleGetFunction);
  FOURFOLD_SAME(func_get_attribute, cuFuncGetAttribute);
  FOURFOLD_SAME(func_set_attribute, cuFuncSetAttribute);
  FOURFOLD_SAME(launch_kernel, cuLaunchKernel);
  FOURFOLD_SAME(graph_get_nodes, cuGraphGetNodes);
  FOURFOLD_SAME(graph_instantiate, cuGraphInstantiateWithFlags);
  FOURFOLD_SAME(graph_launch, cuGraphLaunch);
  FOURFOLD_SAME(graph_exec_destroy, cuGraphExecDestroy);
  FOURFOLD_SAME(graph_destroy, cuGraphDestroy);
}

TEST(DriverAbi, ValuesAreThoseOfTheHeader) {
  EXPECT_EQ(int{ours::kOutOfMemory}, int{CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(int{ours::kNotInitialized}, int{CUDA_ERROR_NOT_INITIALIZED});
  EXPECT_EQ(int{ours::kDeinitialized}, int{CUDA_ERROR_DEINITIALIZED});
  EXPECT_EQ(int{ours::kStubLibrary}, int{CUDA_ERROR_STUB_LIBRARY});
  EXPECT_EQ(int{ours::kDeviceUnavailable}, int{CUDA_ERROR_DEVICE_UNAVAILABLE});
  EXPECT_EQ(int{ours::kNoDevice}, int{CUDA_ERROR_NO_DEVICE});
  EXPECT_EQ(int{ours::kInvalidDevice}, int{CUDA_ERROR_INVALID_DEVICE});
  EXPECT_EQ(int{ours::kInvalidImage}, int{CUDA_ERROR_INVALID_IMAGE});
  EXPECT_EQ(int{ours::kInvalidContext}, int{CUDA_ERROR_INVALID_CONTEXT});
  EXPECT_EQ(int{ours::kNoBinaryForGpu}, int{CUDA_ERROR_NO_BINARY_FOR_GPU});
  EXPECT_EQ(int{ours::kInvalidHandle}, int{CUDA_ERROR_INVALID_HANDLE});
  EXPECT_EQ(int{ours::kIllegalState}, int{CUDA_ERROR_ILLEGAL_STATE});
  EXPECT_EQ(int{ours::kNotFound}, int{CUDA_ERROR_NOT_FOUND});
  EXPECT_EQ(int{ours::kSystemNotReady}, int{CUDA_ERROR_SYSTEM_NOT_READY});
  EXPECT_EQ(int{ours::kSystemDriverMismatch}, int{CUDA_ERROR_SYSTEM_DRIVER_MISMATCH});
  EXPECT_EQ(int{ours::kCompatNotSupportedOnDevice}, int{CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE});
  EXPECT_EQ(int{ours::kStreamCaptureUnsupported}, int{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED});
  EXPECT_EQ(int{ours::kStreamCaptureImplicit}, int{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT});
  EXPECT_EQ(int{ours::kStreamCaptureWrongThread}, int{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD});
  EXPECT_EQ(int{ours::kAttributeClockKhz}, int{CU_DEVICE_ATTRIBUTE_CLOCK_RATE});
  EXPECT_EQ(int{ours::kAttributeMultiprocessors}, int{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT});
  EXPECT_EQ(int{ours::kAttributeMemoryClockKhz}, int{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE});
  EXPECT_EQ(int{ours::kAttributeMemoryBusBits}, int{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH});
  EXPECT_EQ(int{ours::kAttributeL2Bytes}, int{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE});
  EXPECT_EQ(int{ours::kAttributeComputeMajor}, int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR});
  EXPECT_EQ(int{ours::kAttributeComputeMinor}, int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR});
  EXPECT_EQ(int{ours::kAttributeSharedBytesOptin}, int{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN});
  EXPECT_EQ(int{ours::kFunctionMaxThreads}, int{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK});
  EXPECT_EQ(int{ours::kFunctionSharedBytes}, int{CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES});
  EXPECT_EQ(int{ours::kFunctionLocalBytes}, int{CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES});
  EXPECT_EQ(int{ours::kFunctionRegisters}, int{CU_FUNC_ATTRIBUTE_NUM_REGS});
  EXPECT_EQ(int{ours::kFunctionMaxDynamicSharedBytes}, int{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES});
  EXPECT_EQ(ours::kStreamNonBlocking, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(ours::kEventDisableTiming, unsigned{CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(ours::kHostMemoryPortable, unsigned{CU_MEMHOSTALLOC_PORTABLE});
  EXPECT_EQ(int{ours::kCaptureActive}, int{CU_STREAM_CAPTURE_STATUS_ACTIVE});
  EXPECT_EQ(int{ours::kCaptureInvalidated}, int{CU_STREAM_CAPTURE_STATUS_INVALIDATED});
  EXPECT_EQ(static_cast<int>(ours::CaptureMode::thread_local_mode), int{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL});
  EXPECT_EQ(static_cast<int>(ours::CaptureMode::relaxed), int{CU_STREAM_CAPTURE_MODE_RELAXED});
}

}  // namespace
#else
TEST(DriverAbi, ParametersAreThoseOfTheHeader) { GTEST_SKIP() << "this machine has no cuda.h to compare with"; }
#endif
