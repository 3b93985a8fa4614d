// Opening NVRTC and one compile through it.
#include "cuda/jit/nvrtc_api.h"

#include "core/check.h"

namespace fourfold::cuda {
namespace {

// Newest first. The number is NVRTC's major version, which is what its ABI hangs on.
const std::vector<std::string>& library_names() {
  static const std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  return names;
}

constexpr int kOldestMajor = 12;  // the first with --std=c++20

}  // namespace

std::shared_ptr<const NvrtcApi> NvrtcApi::open(std::span<const std::string> folders) {
  std::vector<std::string> patterns(folders.begin(), folders.end());
  patterns.push_back("/usr/local/cuda*/lib64");
  return load(DynamicLibrary::search_list(library_names(), patterns));
}

std::shared_ptr<const NvrtcApi> NvrtcApi::open_file(const std::string& path) {
  return load(std::vector<std::string>{path});
}

std::shared_ptr<const NvrtcApi> NvrtcApi::load(std::span<const std::string> names) {
  std::shared_ptr<NvrtcApi> api(new NvrtcApi);
  try {
    api->library_ = DynamicLibrary::open(names);
  } catch (const Error& error) {
    fail(ErrorCode::unavailable, "no NVRTC to compile kernels with: {}; the wheel nvidia-cuda-nvrtc has it too",
         error.what());
  }
#define FOURFOLD_NVRTC_RESOLVE(name, prototype) \
  api->table_.name = reinterpret_cast<decltype(api->table_.name)>(api->library_.symbol(#name));
  FOURFOLD_NVRTC_CALLS(FOURFOLD_NVRTC_RESOLVE)
#undef FOURFOLD_NVRTC_RESOLVE
  api->table_.nvrtcGetErrorString =
      reinterpret_cast<decltype(api->table_.nvrtcGetErrorString)>(api->library_.symbol("nvrtcGetErrorString"));

  int major = 0, minor = 0, count = 0;
  api->require(api->table_.nvrtcVersion(&major, &minor), "nvrtcVersion");
  check(major >= kOldestMajor, ErrorCode::unavailable, "NVRTC '{}' is version {}.{}; {} or newer is needed",
        api->path(), major, minor, kOldestMajor);
  api->version_ = fmt::format("{}.{}", major, minor);
  api->require(api->table_.nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  api->architectures_.resize(static_cast<std::size_t>(count));
  api->require(api->table_.nvrtcGetSupportedArchs(api->architectures_.data()), "nvrtcGetSupportedArchs");
  return api;
}

void NvrtcApi::require(NvrtcResult result, const char* call) const {
  if (result == NvrtcResult::success) return;
  fail(ErrorCode::internal, "{} failed with {} ({}) in '{}', version {}", call, table_.nvrtcGetErrorString(result),
       static_cast<int>(result), path(), version_.empty() ? "unknown" : version_);
}

void NvrtcApi::fetch(NvrtcProgram program, NvrtcOutput& output) const {
  std::size_t bytes = 0;
  require(table_.nvrtcGetProgramLogSize(program, &bytes), "nvrtcGetProgramLogSize");
  output.log.resize(bytes);
  if (bytes > 0) require(table_.nvrtcGetProgramLog(program, output.log.data()), "nvrtcGetProgramLog");
  while (!output.log.empty() && (output.log.back() == '\0' || output.log.back() == '\n')) output.log.pop_back();
  if (output.result != NvrtcResult::success) return;
  require(table_.nvrtcGetCUBINSize(program, &bytes), "nvrtcGetCUBINSize");
  output.image.resize(bytes);
  if (bytes > 0) {
    char* image = reinterpret_cast<char*>(output.image.data());
    require(table_.nvrtcGetCUBIN(program, image), "nvrtcGetCUBIN");
  }
}

NvrtcOutput NvrtcApi::compile(std::span<const NamedSource> sources, std::span<const std::string> options) const {
  check(!sources.empty(), ErrorCode::internal, "a compile without a source");
  // NVRTC wants zero-terminated texts; a view need not be one.
  std::vector<std::string> names, texts;
  for (const NamedSource& source : sources) {
    names.emplace_back(source.name);
    texts.emplace_back(source.text);
  }
  std::vector<const char*> header_names, headers, flags;
  for (std::size_t i = 1; i < sources.size(); ++i) {
    header_names.push_back(names[i].c_str());
    headers.push_back(texts[i].c_str());
  }
  for (const std::string& option : options) flags.push_back(option.c_str());

  NvrtcProgram program = nullptr;
  require(table_.nvrtcCreateProgram(&program, texts[0].c_str(), names[0].c_str(), static_cast<int>(headers.size()),
                                    headers.data(), header_names.data()),
          "nvrtcCreateProgram");
  struct Destroyer {
    const Table& table;
    NvrtcProgram program;
    ~Destroyer() { table.nvrtcDestroyProgram(&program); }
  } destroyer{table_, program};

  NvrtcOutput output;
  output.result = table_.nvrtcCompileProgram(program, static_cast<int>(flags.size()), flags.data());
  output.result_text = table_.nvrtcGetErrorString(output.result);
  // Only these two are about what was compiled, and have a log worth reading.
  if (output.result != NvrtcResult::compilation && output.result != NvrtcResult::invalid_option)
    require(output.result, "nvrtcCompileProgram");
  fetch(program, output);
  return output;
}

}  // namespace fourfold::cuda
