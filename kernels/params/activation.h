// The activation between the two projections, the same on host and device.
#pragma once

#include "params/integers.h"

namespace fourfold::kernels {

enum class Activation : Int32 { silu = 0, swiglu_oai = 1, situ = 2, gelu_tanh = 3, relu2 = 4 };

}  // namespace fourfold::kernels
