// From a kernel's name to a cubin: sources, fixed options, and a compiler that may say nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/embedded_sources.h"
#include "cuda/jit/kernel_key.h"
#include "cuda/jit/nvrtc_api.h"
#include "plan/kernel_spec.h"

namespace fourfold::cuda {

/// Bytes of a cubin.
using Image = std::vector<std::byte>;

/// What turns a kernel into an image. Implementations are thread-safe.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  /// What the image depends on besides kernel and sources. May open the compiler: throws unavailable without one.
  virtual KernelTarget target(const std::string& architecture) = 0;
  /// Throws unsupported with the compiler's text when the kernel does not compile. Allocates; may take seconds.
  virtual Image compile(const KernelSpec& spec, const std::string& architecture) = 0;
};

/// Registers and memory of a kernel, as the assembler reports them.
struct KernelResources {
  int registers = 0;              ///< of a thread
  std::int64_t spill_bytes = 0;   ///< stores and loads to local memory for want of registers
  std::int64_t stack_bytes = 0;   ///< a thread's frame in local memory
  std::int64_t shared_bytes = 0;  ///< static shared memory of a block
};

/// What a compile gave besides the image.
struct CompiledKernel {
  Image image;
  std::string log;            ///< everything the compiler said; empty for a kernel in good order
  KernelResources resources;  ///< filled when Report::resources was asked for
};

/// Which text the compiler may print. `silence` throws on any: warnings, spills, injected waits. `resources` adds the
/// assembler's report and reads it; then spills are in the numbers. `anything` returns what it said as log.
enum class Report { silence, resources, anything };

/// Options of every compile, in order, without architecture and macros. Pure.
const std::vector<std::string>& compile_options();

/// "sm_90a" -> 90. Throws unsupported when `architecture` is no such name.
int compute_capability(std::string_view architecture);

/// Reads an assembler's -v report. Throws internal when it does not name the registers. Pure.
KernelResources parse_resource_report(std::string_view log);

/// NVRTC, opened at the first call that needs it: a process whose kernels come from packs never opens it.
class NvrtcCompiler : public KernelCompiler {
 public:
  /// `folders` are searched for NVRTC first. A non-empty `dump_folder` (FOURFOLD_JIT_DUMP) gets source, log and image
  /// of every compile; when it cannot be written, that is warned about once. `sources` must outlive this.
  explicit NvrtcCompiler(const SourceTree& sources, std::vector<std::string> folders = {},
                         std::filesystem::path dump_folder = {});
  KernelTarget target(const std::string& architecture) override;
  Image compile(const KernelSpec& spec, const std::string& architecture) override;
  /// The same with a choice of what the compiler may say. Throws unsupported with its text when the kernel does not
  /// compile, when the architecture is not one of NVRTC's, or for text that `report` does not allow; internal when
  /// NVRTC returns no image.
  CompiledKernel compile(const KernelSpec& spec, const std::string& architecture, Report report);
  /// Throws unavailable when there is no NVRTC; later calls then try again.
  const NvrtcApi& api();

 private:
  void dump(const KernelSpec& spec, const std::string& architecture, const NvrtcOutput& output);

  const SourceTree& sources_;
  std::vector<std::string> folders_;
  std::filesystem::path dump_folder_;
  std::mutex mutex_;  // guards api_ and dump_failed_
  std::shared_ptr<const NvrtcApi> api_;
  bool dump_failed_ = false;
};

}  // namespace fourfold::cuda
