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

/// Throws usage when a tensor of a call of `tokens` rows, more than a plan of `caps` may serve at once, has the wrong
/// dtype, shape or address, or `tensors.out` overlaps an input. Texts as bind's. Afterwards offsets of rows are safe.
void check_whole_call(const Caps& caps, const MoeTensors& tensors, std::int64_t tokens);

}  // namespace fourfold
