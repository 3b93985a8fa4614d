// What the machine can do at most: read bandwidth and register-only arithmetic, measured now.
#pragma once

#include "fourfold/backend.h"

namespace fourfold::cpu {

/// Best of five passes over 1 GiB and best of five bursts of arithmetic, on all of the device's threads. Without a bf16
/// dot product the bf16 figure is the fp32 one. Takes about a second. Throws unavailable without 1 GiB of memory.
Probes measure(const Device& device);

}  // namespace fourfold::cpu
