// Enumerates problems through the planner and collects what their plans launch.
#include "plan/kernel_catalog.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/check.h"
#include "fourfold/kernels.h"
#include "plan/plan_data.h"

namespace fourfold {
namespace {

// A plan may look at the device's size, so each known device of the architecture is asked.
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

std::vector<FormatSpec> all_formats() {
  std::vector<FormatSpec> formats{FormatSpec::nvfp4(), FormatSpec::mxfp4()};
  for (const std::int64_t group : {0, 16, 32, 64, 96, 128, 256})
    for (const bool zero_points : {false, true}) formats.push_back(FormatSpec::int4(group, zero_points));
  return formats;
}

// Everything that a plan may choose a kernel by. Sizes: the smallest with a tail in every tile, and a usual large one;
// max_tokens is large in both, because a plan has the bands of all smaller counts.
std::vector<Caps> enumerated_caps() {
  struct Sizes {
    std::int64_t experts, top_k, hidden, intermediate;
  };
  constexpr std::array<Sizes, 2> kSizes{{{3, 2, 8, 8}, {128, 8, 4096, 2048}}};
  constexpr std::int64_t kManyTokens = 1 << 16;
  std::vector<Caps> problems;
  for (const Sizes& sizes : kSizes)
    for (const FormatSpec& format : all_formats())
      for (const DType dtype : {DType::bf16, DType::f16})
        for (const ActivationKind kind : {ActivationKind::silu, ActivationKind::swiglu_oai, ActivationKind::situ,
                                          ActivationKind::gelu_tanh, ActivationKind::relu2})
          for (const bool invariant : {false, true}) {
            Caps caps;
            caps.max_tokens = kManyTokens;
            caps.top_k = sizes.top_k;
            caps.experts = sizes.experts;
            caps.hidden = sizes.hidden;
            caps.intermediate = sizes.intermediate;
            caps.format = format;
            caps.activation_dtype = dtype;
            caps.activation.kind = kind;
            caps.batch_invariant = invariant;
            problems.push_back(caps);
          }
  return problems;
}

}  // namespace

std::vector<KernelSpec> kernel_catalog(const std::string& architecture) {
  return kernels_of_problems(architecture, enumerated_caps());
}

std::vector<KernelSpec> kernels_of_problems(const std::string& architecture, std::span<const Caps> problems) {
  std::map<std::string, KernelSpec> kernels;
  for (const Device& device : devices_of(architecture))
    for (const Caps& caps : problems) {
      const Plan planned = plan(caps, device);
      for (const KernelSpec& spec : planned.data()->kernel_specs) {
        const auto [entry, added] = kernels.emplace(spec.name(), spec);
        check(added || entry->second == spec, ErrorCode::internal, "two plans mean different things by kernel {}",
              spec.name());
      }
    }
  std::vector<KernelSpec> sorted;
  for (auto& [name, spec] : kernels) sorted.push_back(std::move(spec));
  return sorted;
}

}  // namespace fourfold
