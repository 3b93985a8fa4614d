// The stand-in driver: modules, functions, launches, graphs.
//
// An image is either text, "fourfold stand-in module\n" and then a line "entry NAME [attribute=value ...]" for each
// function (attributes: max_threads, static_shared, local, registers, and params: bytes of the one argument, which a
// launch then records), or an ELF file: it then has every function whose name occurs in it.
#include <algorithm>
#include <string_view>

#include "state.h"

namespace fourfold::cuda::stand_in {
namespace {

constexpr std::string_view kMagic = "fourfold stand-in module\n";
constexpr int kDefaultDynamicBytes = 48 * 1024;
constexpr int kMaxBlockThreads = 1024;
constexpr int kFunctionParamsBytes = -1;  // no attribute of the driver's

/// Bytes of a 64-bit ELF file, by its header: the section headers are its end. 0 for none.
std::size_t elf_bytes(const char* image) {
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return 0;
  std::uint64_t sections_offset = 0;
  std::uint16_t entry_bytes = 0, entries = 0;
  std::memcpy(&sections_offset, image + 0x28, sizeof sections_offset);  // e_shoff
  std::memcpy(&entry_bytes, image + 0x3A, sizeof entry_bytes);          // e_shentsize
  std::memcpy(&entries, image + 0x3C, sizeof entries);                  // e_shnum
  return sections_offset == 0 ? 0 : sections_offset + std::uint64_t{entry_bytes} * entries;
}

std::map<int, int> default_attributes() {
  return {{kFunctionMaxThreads, kMaxBlockThreads},
          {kFunctionSharedBytes, 0},
          {kFunctionLocalBytes, 0},
          {kFunctionRegisters, 32},
          {kFunctionMaxDynamicSharedBytes, kDefaultDynamicBytes}};
}

/// The function `name` of an image of text; false when there is none.
bool read_entry(const std::string& image, const std::string& name, std::map<int, int>& attributes) {
  const std::map<std::string, int> known = {{"max_threads", kFunctionMaxThreads},
                                            {"static_shared", kFunctionSharedBytes},
                                            {"local", kFunctionLocalBytes},
                                            {"registers", kFunctionRegisters},
                                            {"params", kFunctionParamsBytes}};
  std::istringstream lines(image.substr(kMagic.size()));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, entry;
    words >> word >> entry;
    if (word != "entry" || entry != name) continue;
    while (words >> word) {
      const auto found = known.find(word.substr(0, word.find('=')));
      if (found != known.end()) attributes[found->second] = std::stoi(word.substr(word.find('=') + 1));
    }
    return true;
  }
  return false;
}

bool is_zero(unsigned int x, unsigned int y, unsigned int z) { return x == 0 || y == 0 || z == 0; }

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* data) {
  return logged("cuModuleLoadData", "", [&](State& all) {
    const CUcontext context = this_thread_state().current();
    if (context == nullptr) return kInvalidContext;
    if (all.strict_module_load)
      if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    const auto* image = static_cast<const char*>(data);
    std::string bytes;
    if (std::strncmp(image, kMagic.data(), kMagic.size()) == 0)
      bytes = image;
    else if (const std::size_t size = elf_bytes(image); size > 0)
      bytes.assign(image, size);
    else
      return kInvalidImage;
    *module = new CUmod_st{context, {}, std::move(bytes)};
    all.modules.insert(*module);
    return kSuccess;
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return logged("cuModuleUnload", text("module=", module), [&](State& all) {
    if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    if (all.modules.erase(module) == 0) return kInvalidHandle;
    for (const auto& function : module->functions) all.functions.erase(function.get());
    delete module;
    return kSuccess;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return logged("cuModuleGetFunction", text("module=", module, " name=", name), [&](State& all) {
    if (!all.modules.contains(module)) return kInvalidHandle;
    for (const auto& known : module->functions)
      if (known->name == name) {
        *function = known.get();
        return kSuccess;
      }
    auto found = std::make_unique<CUfunc_st>();
    found->module = module;
    found->name = name;
    found->attributes = default_attributes();
    const bool is_text = module->image.starts_with(kMagic);
    if (is_text ? !read_entry(module->image, name, found->attributes) : module->image.find(name) == std::string::npos)
      return kNotFound;
    *function = found.get();
    all.functions.insert(found.get());
    module->functions.push_back(std::move(found));
    return kSuccess;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return logged("cuFuncLoad", text("function=", function),
                [&](State& all) { return all.functions.contains(function) ? kSuccess : kInvalidHandle; });
}

CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  return logged("cuFuncGetAttribute", text("attribute=", attribute, " function=", function), [&](State& all) {
    if (!all.functions.contains(function)) return kInvalidHandle;
    const auto found = function->attributes.find(attribute);
    if (found == function->attributes.end()) return kInvalidValue;
    *value = found->second;
    return kSuccess;
  });
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  const std::string arguments = text("attribute=", attribute, " value=", value, " function=", function);
  return logged("cuFuncSetAttribute", arguments, [&](State& all) {
    if (!all.functions.contains(function)) return kInvalidHandle;
    const int device = function->module->context->ordinal;
    const int limit = all.devices[device]->attributes[kAttributeSharedBytesOptin];
    if (attribute != kFunctionMaxDynamicSharedBytes || value < 0 ||
        value > limit - function->attributes[kFunctionSharedBytes])
      return kInvalidValue;
    function->attributes[attribute] = value;
    return kSuccess;
  });
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int dynamic_bytes,
                        CUstream stream, void** arguments_of_kernel, void**) {
  const std::string arguments =
      text("function=", function, " grid=", grid_x, "x", grid_y, "x", grid_z, " block=", block_x, "x", block_y, "x",
           block_z, " shared=", dynamic_bytes, " stream=", stream);
  return logged("cuLaunchKernel", arguments, [&](State& all) {
    if (!all.functions.contains(function) || !all.streams.contains(stream)) return kInvalidHandle;
    if (function->module->context != stream->context) return kInvalidHandle;
    const std::uint64_t threads = std::uint64_t{block_x} * block_y * block_z;
    if (is_zero(grid_x, grid_y, grid_z) || is_zero(block_x, block_y, block_z) ||
        threads > static_cast<std::uint64_t>(function->attributes[kFunctionMaxThreads]) ||
        dynamic_bytes > static_cast<unsigned int>(function->attributes[kFunctionMaxDynamicSharedBytes]))
      return kInvalidValue;
    const auto params = function->attributes.find(kFunctionParamsBytes);
    all.launched_params.emplace_back();
    if (params != function->attributes.end())
      all.launched_params.back().assign(static_cast<const char*>(arguments_of_kernel[0]),
                                        static_cast<std::size_t>(params->second));
    return submit(all, stream, {"cuLaunchKernel", text(function->name, " ", arguments), [&all] {
                                  all.now_us += all.launch_us;
                                }});
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return logged("cuGraphGetNodes", text("graph=", graph), [&](State& all) {
    if (!all.graphs.contains(graph) || nodes != nullptr) return kInvalidValue;
    *count = graph->nodes.size();
    return kSuccess;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return logged("cuGraphInstantiateWithFlags", text("graph=", graph, " flags=", flags), [&](State& all) {
    if (!all.graphs.contains(graph)) return kInvalidValue;
    if (const CUresult unsafe = check_unsafe(all); unsafe != kSuccess) return unsafe;
    *exec = new CUgraphExec_st{graph->nodes};
    all.graph_execs.insert(*exec);
    return kSuccess;
  });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return logged("cuGraphLaunch", text("exec=", exec, " stream=", stream), [&](State& all) {
    if (!all.graph_execs.contains(exec) || !all.streams.contains(stream)) return kInvalidHandle;
    if (const CUresult captured = check_not_captured(stream); captured != kSuccess) return captured;
    for (const GraphNode& node : exec->nodes) {
      if (node.replay) node.replay();
      add_to_log(all, node.name, node.arguments, kSuccess, false);
    }
    return kSuccess;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return logged("cuGraphExecDestroy", text("exec=", exec), [&](State& all) {
    if (all.graph_execs.erase(exec) == 0) return kInvalidValue;
    delete exec;
    return kSuccess;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return logged("cuGraphDestroy", text("graph=", graph), [&](State& all) {
    if (all.graphs.erase(graph) == 0) return kInvalidValue;
    delete graph;
    return kSuccess;
  });
}
}

}  // namespace fourfold::cuda::stand_in
