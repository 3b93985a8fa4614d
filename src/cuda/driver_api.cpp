// Opening the CUDA driver, and the texts of its errors.
#include "cuda/driver_api.h"

#include <array>
#include <string_view>

#include "core/check.h"

namespace fourfold::cuda {
namespace {

/// What the caller can do about a result; empty when only a fix of ours helps.
std::string_view remedy(CUresult result) noexcept {
  switch (result) {
    case kOutOfMemory:
      return "; free device memory, or plan for fewer tokens";
    case kStubLibrary:
      return "; this is the stub of the toolkit: let the loader find the driver's own libcuda.so.1";
    case kNoDevice:
    case kInvalidDevice:
      return "; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the CPU";
    case kDeviceUnavailable:
      return "; another process holds the device exclusively";
    case kSystemDriverMismatch:
    case kCompatNotSupportedOnDevice:
      return "; the driver's library and kernel module are of different versions";
    case kNoBinaryForGpu:
      return "; the image was built for another architecture";
    default:
      break;
  }
  if (result >= kStreamCaptureUnsupported && result <= kStreamCaptureWrongThread)
    return "; a stream capture forbids this call: make it before the capture begins or after it ends";
  return "";
}

}  // namespace

ErrorCode error_code(CUresult result) noexcept {
  switch (result) {
    case kOutOfMemory:
    case kNotInitialized:
    case kStubLibrary:
    case kDeviceUnavailable:
    case kNoDevice:
    case kInvalidDevice:
    case kSystemNotReady:
    case kSystemDriverMismatch:
    case kCompatNotSupportedOnDevice:
      return ErrorCode::unavailable;
    default:
      return result >= kStreamCaptureUnsupported && result <= kStreamCaptureWrongThread ? ErrorCode::usage
                                                                                        : ErrorCode::internal;
  }
}

std::shared_ptr<const DriverApi> DriverApi::open(const std::string& library) {
  DynamicLibrary opened = [&] {
    try {
      return DynamicLibrary::open(std::array{library});
    } catch (const Error& error) {
      fail(ErrorCode::unavailable, "no CUDA driver: {}; it is part of NVIDIA's driver (without a GPU, use the CPU)",
           error.what());
    }
  }();
  const std::shared_ptr<DriverApi> driver(new DriverApi(std::move(opened)));
  driver->resolve();
  if (const CUresult result = driver->init.function(0); result != kSuccess)
    fail(ErrorCode::unavailable, "the CUDA driver {} does not start: cuInit: {}{}", library,
         driver->result_text(result), remedy(result));
  driver->call(driver->driver_get_version, -1, &driver->version_);
  return driver;
}

void DriverApi::resolve() {
  const auto optional = [&](auto& entry) {
    entry.function = reinterpret_cast<decltype(entry.function)>(library_.find_symbol(entry.name));
  };
  const auto required = [&](auto& entry) {
    optional(entry);
    check(entry.function != nullptr, ErrorCode::unavailable,
          "the CUDA driver {} has no {}: it is older than CUDA 11.4; install a newer driver", library_.path(),
          entry.name);
  };
#define FOURFOLD_RESOLVE(member, symbol, ...) required(this->member);
#define FOURFOLD_RESOLVE_OPTIONAL(member, symbol, ...) optional(this->member);
  FOURFOLD_CUDA_ENTRY_POINTS(FOURFOLD_RESOLVE)
  FOURFOLD_CUDA_OPTIONAL_ENTRY_POINTS(FOURFOLD_RESOLVE_OPTIONAL)
#undef FOURFOLD_RESOLVE
#undef FOURFOLD_RESOLVE_OPTIONAL
}

std::string DriverApi::result_text(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name.function(result, &name) != kSuccess || name == nullptr)
    return fmt::format("result {}, which this driver does not name", result);
  if (get_error_string.function(result, &text) != kSuccess || text == nullptr)
    return fmt::format("{} ({})", name, result);
  return fmt::format("{} ({}): {}", name, result, text);
}

void DriverApi::fail_call(const char* call, int device, CUresult result) const {
  const std::string where = device < 0 ? std::string() : fmt::format(" on cuda:{}", device);
  fail(error_code(result), "{}{} failed: {}{}", call, where, result_text(result), remedy(result));
}

DriverOpening try_open_driver(const std::string& library) {
  try {
    return {DriverApi::open(library), ""};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

}  // namespace fourfold::cuda
