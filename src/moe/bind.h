// What the facade's calls check alike.
#pragma once

#include <string_view>

#include "fourfold/backend.h"
#include "fourfold/moe.h"
#include "fourfold/plan.h"

namespace fourfold {

/// Throws usage unless `plan` was made for a device like the backend's: same kind, architecture and instruction
/// set. Thread counts may differ: a run uses the plan's. `call` names the caller in the text.
void check_device(const Plan& plan, const Backend& backend, std::string_view call);

/// Throws usage when `tensors.out` overlaps an input, whole tensors, whatever bind looks at.
void check_output_apart(const MoeTensors& tensors);

}  // namespace fourfold
