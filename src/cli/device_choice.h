// From what a user writes after --device (or after '@' in a problem) to a device to plan for or to run on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fourfold/backend.h"
#include "fourfold/plan.h"

namespace fourfold::cli {

/// The help text of a --device option: of verbs that compute anywhere, and of those that need the CPU.
inline constexpr const char* kRunDeviceHelp = "where to compute: cpu, or a GPU of this machine: cuda:0";
inline constexpr const char* kCpuDeviceHelp = "where to compute: cpu; a GPU runs no whole models yet";

/// The number of "cuda:N", 0 for "cuda", empty for a name that is no GPU of this machine. Throws usage for "cuda:x".
std::optional<int> cuda_ordinal(const std::string& device);

/// The backend that `device` names: "cpu" or "cuda:N". `threads` > 0 overrides FOURFOLD_THREADS. Throws unavailable for
/// a device that is not there or can only be planned for, usage for a name that is none.
std::shared_ptr<Backend> open_backend(const std::string& device, int threads = 0);

/// The same for a verb that needs the CPU: throws unsupported for a GPU.
std::shared_ptr<Backend> open_cpu(const std::string& device, std::string_view verb, int threads = 0);

/// The same for a problem: an "@arch" in its text must agree with `device`. Throws usage when they differ.
std::shared_ptr<Backend> open_backend_for(const Problem& problem, const std::string& device, int threads = 0);

/// The device to plan for: `device` when given, else the problem's `arch` ("sm90", "sm_90a", "h200", "cpu"), else
/// this machine's CPU. "cpu" is the CPU as it is here, not a preset. Throws usage with the names that are known.
Device device_to_plan_for(const std::string& device, const std::string& arch);

/// The architecture as kernels name it, "sm_90a" for "sm90"; what is none stays as it is.
std::string full_arch(const std::string& arch);

/// "AMD EPYC (avx2, 2 threads)" or "h200 (sm_90a)".
std::string device_text(const Device& device);
/// The same with a GPU's multiprocessors: "h200 (sm_90a), 132 SMs".
std::string full_device_text(const Device& device);

}  // namespace fourfold::cli
