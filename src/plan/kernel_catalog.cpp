// Asks the planner for every instance of its tables, and collects.
#include "plan/kernel_catalog.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "fourfold/kernels.h"
#include "plan/cuda_tile_plan.h"
#include "plan/plan_data.h"

namespace fourfold {
namespace {

// A plan looks at the device's size, so each known device of the architecture is asked.
std::vector<Device> devices_of(const std::string& architecture) {
  const std::vector<std::string> known = kernel_architectures();
  check(std::find(known.begin(), known.end(), architecture) != known.end(), ErrorCode::usage,
        "architecture \"{}\": there are kernels for {}; name one of these", architecture, fmt::join(known, ", "));
  std::vector<Device> devices;
  for (const std::string& name : device_preset_names())
    if (Device device = device_preset(name); device.arch == architecture) devices.push_back(std::move(device));
  check(!devices.empty(), ErrorCode::internal, "no device preset has the architecture {}", architecture);
  return devices;
}

/// Kernels by name.
class Collection {
 public:
  void add(std::span<const KernelSpec> specs) {
    for (KernelSpec spec : specs) {
      const auto [entry, added] = kernels_.emplace(spec.name(), spec);
      // Shared memory is what differs: a plan says the most that its token counts and its format's scales need.
      spec.shared_bytes = entry->second.shared_bytes = std::max(spec.shared_bytes, entry->second.shared_bytes);
      check(added || entry->second == spec, ErrorCode::internal, "two plans mean different things by kernel {}",
            spec.name());
    }
  }
  std::vector<KernelSpec> sorted() const {
    std::vector<KernelSpec> all;
    for (const auto& [name, spec] : kernels_) all.push_back(spec);
    return all;
  }

 private:
  std::map<std::string, KernelSpec> kernels_;
};

std::vector<FormatSpec> all_formats() {
  std::vector<FormatSpec> formats{FormatSpec::nvfp4(), FormatSpec::mxfp4()};
  for (const std::int64_t group : {0, 16, 32, 64, 96, 128, 256})
    for (const bool zero_points : {false, true}) formats.push_back(FormatSpec::int4(group, zero_points));
  return formats;
}

/// Some problem of a format and an activation dtype.
Caps problem_of(const FormatSpec& format, DType dtype) {
  Caps caps;
  caps.max_tokens = caps.experts = caps.top_k = 1;
  caps.hidden = caps.intermediate = 8;
  caps.format = format;
  caps.activation_dtype = dtype;
  return caps;
}

}  // namespace

std::vector<KernelSpec> kernel_catalog(const std::string& architecture) {
  Collection kernels;
  for (Device device : devices_of(architecture))
    for (const FormatSpec& format : all_formats())
      for (const DType dtype : {DType::bf16, DType::f16}) {
        Caps caps = problem_of(format, dtype);
        device.naive_kernels = false;
        kernels.add(cuda_tile_kernels(caps, device));
        device.naive_kernels = true;  // the plain twins are for comparison, which should need no compiler
        for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::swiglu_oai, ActivationKind::situ,
                                          ActivationKind::gelu_tanh, ActivationKind::relu2}) {
          caps.activation.kind = kind;
          kernels.add(plan(caps, device).data()->kernel_specs);
        }
      }
  return kernels.sorted();
}

std::vector<KernelSpec> kernels_of_problems(const std::string& architecture, std::span<const Caps> problems) {
  Collection kernels;
  for (const Device& device : devices_of(architecture))
    for (const Caps& caps : problems) kernels.add(plan(caps, device).data()->kernel_specs);
  return kernels.sorted();
}

}  // namespace fourfold
