// Detects the instruction set (CPUID with the operating system's XCR0, through the compiler's run-time library) and
// applies the cap.
#include "cpu/isa.h"

#include <omp.h>

#include <array>
#include <fstream>
#include <string>

#include "core/check.h"

namespace fourfold::cpu {
namespace {

constexpr std::array<CpuIsa, 4> kIsas{CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16};
constexpr std::uint32_t kIeeeControl = 0x1f80;  // MXCSR after reset: all exceptions masked, nearest even, no flushing

constexpr const char* kSlowDotReason =
    "on Intel processors vdpbf16ps multiplies at half the rate of fp32 FMA; FOURFOLD_CPU_ISA=avx512_bf16 forces it";

/// Intel cores issue a 512-bit vdpbf16ps every two cycles and two fp32 FMAs a cycle (their bf16 unit is AMX); AMD's
/// Zen 4 and 5 issue it as often as an FMA.
bool bf16_dot_is_slow() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool is_native(const std::string& name) { return name == "native" || name.empty(); }

CpuIsa cap_from(const std::string& name) {
  if (is_native(name)) return bf16_dot_is_slow() ? CpuIsa::avx512 : CpuIsa::avx512_bf16;
  for (const CpuIsa isa : kIsas)
    if (name == cpu_isa_name(isa)) return isa;
  fail(ErrorCode::usage,
       "cpu_isa (FOURFOLD_CPU_ISA) = \"{}\" is no instruction set; use native, portable, avx2, avx512 or avx512_bf16",
       name);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace

CpuIsa detected_isa() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return CpuIsa::portable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return CpuIsa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? CpuIsa::avx512_bf16 : CpuIsa::avx512;
#else
  return CpuIsa::portable;
#endif
}

Device cpu_device(const Settings& settings) {
  const CpuIsa cap = cap_from(settings.cpu_isa);
  const CpuIsa found = detected_isa();
  check(settings.threads >= 0, ErrorCode::usage, "threads (FOURFOLD_THREADS) = {}; use 0 for OpenMP's default or more",
        settings.threads);
  Device device;
  device.kind = DeviceKind::cpu;
  device.name = processor_name();
  device.isa = cap < found ? cap : found;
  if (cap < found && is_native(settings.cpu_isa))
    device.isa_fallback_reason = kSlowDotReason;
  else if (cap < found)
    device.isa_fallback_reason = fmt::format("capped by FOURFOLD_CPU_ISA={}", cpu_isa_name(cap));
  else if (found != CpuIsa::avx512_bf16)
    device.isa_fallback_reason =
        fmt::format("machine has no {}", cpu_isa_name(kIsas[static_cast<std::size_t>(found) + 1]));
  device.threads = settings.threads > 0 ? settings.threads : omp_get_max_threads();
  return device;
}

IeeeArithmetic::IeeeArithmetic() noexcept {
#if defined(__x86_64__)
  saved_ = __builtin_ia32_stmxcsr();
  if (saved_ != kIeeeControl) __builtin_ia32_ldmxcsr(kIeeeControl);
#endif
}

IeeeArithmetic::~IeeeArithmetic() {
#if defined(__x86_64__)
  if (saved_ != kIeeeControl) __builtin_ia32_ldmxcsr(saved_);
#endif
}

}  // namespace fourfold::cpu
