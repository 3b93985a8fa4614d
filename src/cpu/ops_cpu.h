// Factory of the CPU's dense operations.
#pragma once

#include <memory>

#include "backend/ops.h"
#include "fourfold/plan.h"

namespace fourfold {

/// Operations for `device.isa` with `device.threads` threads. The machine must have that ISA.
std::unique_ptr<Ops> make_cpu_ops(const Device& device);

}  // namespace fourfold
