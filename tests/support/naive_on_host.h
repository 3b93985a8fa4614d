// The naive CUDA kernels, compiled as C++, behind the backend seam: plans for a CUDA device, packs the kernels' weight
// layout into host memory and plays every launch of the plan thread by thread. It shows what the kernels compute, not
// that a GPU launches them.
#pragma once

#include <memory>

#include "fourfold/backend.h"
#include "support/cuda_order.h"

namespace support {

/// A backend whose device is the preset "h200". Every segment is filled with 0xa5 at the start of the first step of its
/// life, and with 0x5a at the end of the last one. No dense operations.
std::shared_ptr<fourfold::Backend> naive_on_host(ThreadOrder order = ThreadOrder::ascending);

}  // namespace support
