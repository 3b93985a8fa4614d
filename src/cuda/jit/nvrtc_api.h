// NVIDIA's run-time compiler, opened at run time: one table of the entry points we use, every call checked.
// Prototypes follow the NVRTC documentation (the ABI of versions 12 and 13); no CUDA header is needed to build.
#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dynamic_library.h"

namespace fourfold::cuda {

/// nvrtcResult; only the values that are told apart. 0 is success.
enum class NvrtcResult : int { success = 0, invalid_option = 5, compilation = 6 };

/// nvrtcProgram, an opaque pointer.
using NvrtcProgram = struct NvrtcProgramTag*;

// name, prototype. Each returns nvrtcResult; nvrtcGetErrorString is listed apart because it does not.
#define FOURFOLD_NVRTC_CALLS(X)                                                                          \
  X(nvrtcVersion, (int* major, int* minor))                                                              \
  X(nvrtcGetNumSupportedArchs, (int* count))                                                             \
  X(nvrtcGetSupportedArchs, (int* architectures))                                                        \
  X(nvrtcCreateProgram, (NvrtcProgram * program, const char* source, const char* name, int header_count, \
                         const char* const* headers, const char* const* header_names))                   \
  X(nvrtcDestroyProgram, (NvrtcProgram * program))                                                       \
  X(nvrtcCompileProgram, (NvrtcProgram program, int option_count, const char* const* options))           \
  X(nvrtcGetCUBINSize, (NvrtcProgram program, std::size_t * bytes))                                      \
  X(nvrtcGetCUBIN, (NvrtcProgram program, char* cubin))                                                  \
  X(nvrtcGetProgramLogSize, (NvrtcProgram program, std::size_t * bytes))                                 \
  X(nvrtcGetProgramLog, (NvrtcProgram program, char* log))

/// Source text with the name by which other sources include it.
struct NamedSource {
  std::string_view name;
  std::string_view text;
  bool operator==(const NamedSource&) const = default;
};

/// What one compile gave. `image` is empty when `result` is not success.
struct NvrtcOutput {
  NvrtcResult result = NvrtcResult::success;
  std::string result_text;       ///< NVRTC's own name of `result`
  std::vector<std::byte> image;  ///< a cubin
  std::string log;               ///< everything the compiler said, without the closing zero and trailing line ends
};

/// An opened NVRTC. All functions are thread-safe.
class NvrtcApi {
 public:
  /// Opens libnvrtc.so.13 or .12 from `folders` (shell wildcards), /usr/local/cuda*/lib64 or the loader's path, in this
  /// order. Throws unavailable with everything that was tried. Takes tens of milliseconds the first time.
  static std::shared_ptr<const NvrtcApi> open(std::span<const std::string> folders = {});
  /// Opens exactly this file. Throws unavailable when it does not load or lacks an entry point.
  static std::shared_ptr<const NvrtcApi> open_file(const std::string& path);

  /// "13.0".
  const std::string& version() const noexcept { return version_; }
  const std::string& path() const noexcept { return library_.path(); }
  /// Compute capabilities it compiles for: 80, 90, 100, ... ascending.
  const std::vector<int>& architectures() const noexcept { return architectures_; }

  /// Compiles the first of `sources`; the others are the only headers it can include. `options` are passed as they are.
  /// A compile that fails is no exception: see NvrtcOutput::result. Any other failure throws internal with the call's
  /// name and NVRTC's text. Allocates; may take seconds.
  NvrtcOutput compile(std::span<const NamedSource> sources, std::span<const std::string> options) const;

 private:
  NvrtcApi() = default;
  struct Table {
#define FOURFOLD_NVRTC_MEMBER(name, prototype) NvrtcResult(*name) prototype = nullptr;
    FOURFOLD_NVRTC_CALLS(FOURFOLD_NVRTC_MEMBER)
#undef FOURFOLD_NVRTC_MEMBER
    const char* (*nvrtcGetErrorString)(NvrtcResult) = nullptr;
  };
  static std::shared_ptr<const NvrtcApi> load(std::span<const std::string> names);
  void require(NvrtcResult result, const char* call) const;
  void fetch(NvrtcProgram program, NvrtcOutput& output) const;

  DynamicLibrary library_;
  Table table_;
  std::string version_;
  std::vector<int> architectures_;
};

}  // namespace fourfold::cuda
