// Devices that can be planned for without having them. Sources: NVIDIA data sheets (multiprocessors, memory) and the
// CUDA C++ Programming Guide, "Technical specifications per compute capability" (shared memory per block, opt-in).
#include <fmt/format.h>

#include <array>

#include "core/check.h"
#include "fourfold/plan.h"

namespace fourfold {
namespace {

struct CudaPreset {
  std::string_view name;
  std::string_view arch;
  int multiprocessors;
  std::int64_t shared_memory_bytes;
  std::int64_t memory_gb;  // 10^9 bytes, as sold
};

// The opt-in limit is the multiprocessor's shared memory less 1 KiB of the system's.
constexpr std::int64_t kShared80 = 163 * 1024;
constexpr std::int64_t kShared90 = 227 * 1024;
constexpr std::int64_t kShared120 = 99 * 1024;

constexpr std::array<CudaPreset, 6> kCudaPresets{{
    {"a100", "sm_80", 108, kShared80, 80},
    {"h100", "sm_90a", 132, kShared90, 80},
    {"h200", "sm_90a", 132, kShared90, 141},
    {"b200", "sm_100a", 148, kShared90, 180},
    {"rtx-pro-6000", "sm_120a", 188, kShared120, 96},
    {"rtx-5090", "sm_120a", 170, kShared120, 32},
}};

}  // namespace

std::vector<std::string> device_preset_names() {
  std::vector<std::string> names{"cpu"};
  for (const CudaPreset& preset : kCudaPresets) names.emplace_back(preset.name);
  return names;
}

Device device_preset(std::string_view name) {
  Device device;
  device.name = name;
  if (name == "cpu") return device;  // the portable kernels on one thread: every machine has them
  for (const CudaPreset& preset : kCudaPresets) {
    if (preset.name != name) continue;
    device.kind = DeviceKind::cuda;
    device.arch = preset.arch;
    device.multiprocessors = preset.multiprocessors;
    device.shared_memory_bytes = preset.shared_memory_bytes;
    device.memory_bytes = preset.memory_gb * 1'000'000'000;
    return device;
  }
  fail(ErrorCode::usage, "device \"{}\" is not known; known devices: {}", name, fmt::join(device_preset_names(), ", "));
}

}  // namespace fourfold
