// How a CPU serves a problem: bands, kernels by name, steps and the workspace ledger.
#pragma once

#include "fourfold/plan.h"
#include "plan/plan_data.h"

namespace fourfold {

/// Fills bands, steps, segments, declined, notes, workspace_bytes, weight_bytes and cpu of `data` from data.caps
/// and data.device. The caps have passed can_implement's field rules and the device is a CPU. Throws unsupported
/// when a size leaves 63 bits. Pure.
void plan_cpu(PlanData& data);

}  // namespace fourfold
