// From what a user writes after --device (or after '@' in a problem) to a device to plan for or to run on.
#include "device_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fourfold/error.h"
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

std::shared_ptr<Backend> open_backend(const std::string& device, int threads) {
  if (device != "cpu") {
    const std::vector<std::string> names = device_preset_names();
    if (std::find(names.begin(), names.end(), device) == names.end())
      throw Error(ErrorCode::usage, fmt::format("--device {}: no such device; this build runs on: cpu", device));
    throw Error(ErrorCode::unavailable,
                fmt::format("--device {}: this build can plan for it but not run on it; it runs on: cpu", device));
  }
  Settings settings = settings_from_environment();
  if (threads > 0) settings.threads = threads;
  return cpu_backend(settings);
}

std::shared_ptr<Backend> open_backend_for(const Problem& problem, const std::string& device, int threads) {
  if (!problem.arch.empty() && problem.arch != device)
    throw Error(ErrorCode::usage,
                fmt::format("the problem says @{} but --device is {}; leave one of the two out", problem.arch, device));
  return open_backend(device, threads);
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

}  // namespace fourfold::cli
