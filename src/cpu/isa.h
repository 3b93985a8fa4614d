// Which instruction set this process uses, and the floating-point mode its kernels assume.
#pragma once

#include <cstdint>

#include "fourfold/plan.h"
#include "fourfold/settings.h"

namespace fourfold::cpu {

/// The widest instruction set that processor and operating system offer. Thread-safe.
CpuIsa detected_isa() noexcept;

/// This machine as a device: ISA capped by settings.cpu_isa, with the reason when it is not the widest there is;
/// threads from settings or OpenMP. Throws usage for an unknown cap.
Device cpu_device(const Settings& settings);

/// Sets this thread to IEEE arithmetic (nearest even, subnormals kept) and restores the caller's mode at the end:
/// results must not depend on a host program's flush-to-zero mode.
class IeeeArithmetic {
 public:
  IeeeArithmetic() noexcept;
  ~IeeeArithmetic();
  IeeeArithmetic(const IeeeArithmetic&) = delete;
  IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

 private:
  std::uint32_t saved_ = 0;
};

}  // namespace fourfold::cpu
