// Options in one place, one compile, and what to make of the compiler's text.
#include "cuda/jit/compiler.h"

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"

namespace fourfold::cuda {
namespace {

// Without it ptxas spills in silence.
constexpr const char* kWarnOnSpills = "--ptxas-options=--warn-on-spills";
constexpr const char* kResourceReport = "--ptxas-options=-v";

std::vector<std::string> arguments(const KernelSpec& spec, const std::string& architecture, Report report) {
  std::vector<std::string> list{"--gpu-architecture=" + architecture};
  list.insert(list.end(), compile_options().begin(), compile_options().end());
  if (report == Report::resources) list.emplace_back(kResourceReport);
  for (const auto& [macro, value] : spec.defines) list.push_back(fmt::format("-D{}={}", macro, value));
  return list;
}

// The number that stands right before `words` in `log`; 0 when the words are missing.
std::int64_t number_before(std::string_view log, std::string_view words) {
  const std::size_t end = log.find(words);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
  std::int64_t number = 0;
  std::from_chars(log.data() + begin, log.data() + end, number);
  return number;
}

// "gate_up_naive.sm_90a.1f2e3d4c": instances of one kernel differ in their macros only.
std::string dump_stem(const KernelSpec& spec, const std::string& architecture) {
  const std::string name = spec.name();
  return fmt::format("{}.{}.{}", spec.entry(), architecture, hash_hex(name.data(), name.size()).substr(0, 8));
}

std::string dump_text(const KernelSpec& spec, std::span<const NamedSource> closure,
                      std::span<const std::string> options) {
  std::string text = fmt::format("// {}\n// {}\n", spec.name(), fmt::join(options, " "));
  for (const NamedSource& source : closure) text += fmt::format("\n// ---- {} ----\n{}", source.name, source.text);
  return text;
}

}  // namespace

const std::vector<std::string>& compile_options() {
  static const std::vector<std::string> options = {
      "--std=c++20",
      "-default-device",      // functions without an execution space are device functions
      "--fmad=false",         // results must not depend on what a compiler fuses: kernels fuse by intrinsic only
      "--no-source-include",  // nothing is read from the current folder
      kWarnOnSpills,
  };
  return options;
}

int compute_capability(std::string_view architecture) {
  constexpr std::string_view kPrefix = "sm_";
  int number = 0;
  if (architecture.starts_with(kPrefix)) {
    const char* begin = architecture.data() + kPrefix.size();
    const char* all_end = architecture.data() + architecture.size();
    const auto [end, error] = std::from_chars(begin, all_end, number);
    const std::string_view suffix(end, static_cast<std::size_t>(all_end - end));
    // "a" and "f" open instructions of one architecture or family.
    if (error == std::errc() && number > 0 && (suffix.empty() || suffix == "a" || suffix == "f")) return number;
  }
  fail(ErrorCode::unsupported, "architecture '{}' is no name like sm_80, sm_90a, sm_100a", architecture);
}

KernelResources parse_resource_report(std::string_view log) {
  KernelResources resources;
  resources.registers = static_cast<int>(number_before(log, " registers"));
  check(resources.registers > 0, ErrorCode::internal, "the assembler's report names no registers: '{}'", log);
  resources.spill_bytes = number_before(log, " bytes spill stores") + number_before(log, " bytes spill loads");
  resources.stack_bytes = number_before(log, " bytes stack frame");
  resources.shared_bytes = number_before(log, " bytes smem");
  return resources;
}

NvrtcCompiler::NvrtcCompiler(const SourceTree& sources, std::vector<std::string> folders,
                             std::filesystem::path dump_folder)
    : sources_(sources), folders_(std::move(folders)), dump_folder_(std::move(dump_folder)) {}

const NvrtcApi& NvrtcCompiler::api() {
  const std::lock_guard lock(mutex_);
  if (api_ == nullptr) api_ = NvrtcApi::open(folders_);
  return *api_;
}

KernelTarget NvrtcCompiler::target(const std::string& architecture) {
  return {architecture, compile_options(), "nvrtc " + api().version()};
}

Image NvrtcCompiler::compile(const KernelSpec& spec, const std::string& architecture) {
  return compile(spec, architecture, Report::silence).image;
}

CompiledKernel NvrtcCompiler::compile(const KernelSpec& spec, const std::string& architecture, Report report) {
  const NvrtcApi& nvrtc = api();
  const std::vector<int>& known = nvrtc.architectures();
  check(std::binary_search(known.begin(), known.end(), compute_capability(architecture)), ErrorCode::unsupported,
        "kernel {}: NVRTC {} does not compile for {}; it knows sm_{}", spec.name(), nvrtc.version(), architecture,
        fmt::join(known, ", sm_"));
  const std::vector<NamedSource> closure = sources_.closure(spec.source);
  const std::vector<std::string> options = arguments(spec, architecture, report);
  NvrtcOutput output = nvrtc.compile(closure, options);
  if (!dump_folder_.empty()) dump(spec, architecture, output);
  if (output.result != NvrtcResult::success)
    fail(ErrorCode::unsupported, "kernel {} does not compile for {} with NVRTC {} ({}; options {}):\n{}", spec.name(),
         architecture, nvrtc.version(), output.result_text, fmt::join(options, " "), output.log);
  check(!output.image.empty(), ErrorCode::internal, "kernel {}: NVRTC {} reports success and returns no image",
        spec.name(), nvrtc.version());
  check(report != Report::silence || output.log.empty(), ErrorCode::unsupported,
        "kernel {} for {}: the compiler must say nothing, but NVRTC {} said:\n{}", spec.name(), architecture,
        nvrtc.version(), output.log);
  CompiledKernel compiled{std::move(output.image), std::move(output.log), {}};
  if (report == Report::resources) compiled.resources = parse_resource_report(compiled.log);
  return compiled;
}

void NvrtcCompiler::dump(const KernelSpec& spec, const std::string& architecture, const NvrtcOutput& output) {
  const std::string stem = dump_stem(spec, architecture);
  const std::string text =
      dump_text(spec, sources_.closure(spec.source), arguments(spec, architecture, Report::silence));
  try {
    std::error_code error;
    std::filesystem::create_directories(dump_folder_, error);
    write_file_atomically(dump_folder_ / (stem + ".cu"), text);
    write_file_atomically(dump_folder_ / (stem + ".log"), output.log);
    if (!output.image.empty()) write_file_atomically(dump_folder_ / (stem + ".cubin"), output.image);
  } catch (const Error& failure) {
    const std::lock_guard lock(mutex_);
    if (!dump_failed_) log_warn(fmt::format("FOURFOLD_JIT_DUMP: {}; no compile is dumped", failure.what()));
    dump_failed_ = true;
  }
}

}  // namespace fourfold::cuda
