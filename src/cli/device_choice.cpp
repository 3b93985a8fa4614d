// From what a user writes after --device (or after '@' in a problem) to a device to plan for or to run on.
#include "device_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "fourfold/error.h"
#include "fourfold/gpu.h"
#include "fourfold/kernels.h"
#include "fourfold/settings.h"

namespace fourfold::cli {
namespace {

// "sm_90a" and "sm90" mean one architecture: the suffix letter selects instructions, not a chip.
std::string bare_arch(std::string text) {
  std::erase(text, '_');
  if (text.starts_with("sm") && text.size() > 3 && text.back() == 'a') text.pop_back();
  return text;
}

}  // namespace

std::string full_arch(const std::string& arch) {
  for (const std::string& known : kernel_architectures())
    if (bare_arch(known) == bare_arch(arch)) return known;
  return arch;
}

std::optional<int> cuda_ordinal(const std::string& device) {
  if (device == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return std::nullopt;
  int ordinal = 0;
  const char* const end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(device.data() + kPrefix.size(), end, ordinal);
  if (error != std::errc() || stop != end || ordinal < 0 || device.size() == kPrefix.size())
    throw Error(ErrorCode::usage, fmt::format("--device {}: write cuda:0, cuda:1, ... for a GPU", device));
  return ordinal;
}

std::shared_ptr<Backend> open_backend(const std::string& device, int threads) {
  Settings settings = settings_from_environment();
  if (threads > 0) settings.threads = threads;
  if (device == "cpu") return cpu_backend(settings);
  if (const auto ordinal = cuda_ordinal(device)) return cuda_backend(*ordinal, settings);
  const std::vector<std::string> names = device_preset_names();
  if (std::find(names.begin(), names.end(), device) == names.end())
    throw Error(ErrorCode::usage, fmt::format("--device {}: no such device; write cpu, or cuda:0 for a GPU", device));
  throw Error(ErrorCode::unavailable,
              fmt::format("--device {}: a name to plan for; to run, write cpu, or cuda:0 for a GPU", device));
}

std::shared_ptr<Backend> open_cpu(const std::string& device, std::string_view verb, int threads) {
  if (cuda_ordinal(device))
    throw Error(ErrorCode::unsupported,
                fmt::format("--device {}: {} runs on the CPU only; use --device cpu", device, verb));
  return open_backend(device, threads);
}

std::shared_ptr<Backend> open_backend_for(const Problem& problem, const std::string& device, int threads) {
  const auto conflict = [&] {
    return Error(ErrorCode::usage, fmt::format("the problem says @{} but --device is {}; leave one of the two out",
                                               problem.arch, device));
  };
  const bool on_gpu = cuda_ordinal(device).has_value();
  if (!on_gpu && !problem.arch.empty() && problem.arch != device) throw conflict();
  std::shared_ptr<Backend> backend = open_backend(device, threads);
  if (on_gpu && !problem.arch.empty() && bare_arch(device_to_plan_for("", problem.arch).arch) !=
                                             bare_arch(backend->device().arch))
    throw conflict();
  return backend;
}

Device device_to_plan_for(const std::string& device, const std::string& arch) {
  if (!device.empty() && !arch.empty()) {
    const Device asked = device_to_plan_for(device, ""), named = device_to_plan_for("", arch);
    if (asked.kind != named.kind || bare_arch(asked.arch) != bare_arch(named.arch))
      throw Error(ErrorCode::usage,
                  fmt::format("the problem says @{} but --device is {}; leave one of the two out", arch, device));
    return asked;
  }
  const std::string& wanted = device.empty() ? arch : device;
  if (wanted.empty() || wanted == "cpu") return open_backend("cpu")->device();
  if (const auto ordinal = cuda_ordinal(wanted)) return cuda_device(*ordinal);
  const std::vector<std::string> names = device_preset_names();
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return device_preset(wanted);
  std::vector<std::string> known = names;
  for (const std::string& name : names) {
    Device preset = device_preset(name);
    if (preset.arch.empty()) continue;
    if (bare_arch(preset.arch) == bare_arch(wanted)) return preset;
    if (std::find(known.begin(), known.end(), preset.arch) == known.end()) known.push_back(preset.arch);
  }
  throw Error(ErrorCode::usage, fmt::format("{}{}: no such device; known: {}", device.empty() ? "@" : "--device ",
                                            wanted, fmt::join(known, ", ")));
}

std::string device_text(const Device& device) {
  if (device.kind == DeviceKind::cpu)
    return fmt::format("{} ({}, {} thread{})", device.name, cpu_isa_name(device.isa), device.threads,
                       device.threads == 1 ? "" : "s");
  return fmt::format("{} ({})", device.name, device.arch);
}

std::string full_device_text(const Device& device) {
  return device_text(device) +
         (device.kind == DeviceKind::cuda ? fmt::format(", {} SMs", device.multiprocessors) : std::string());
}

}  // namespace fourfold::cli
