// What a driver says of a machine's GPUs, in the words of the public header.
#pragma once

#include "cuda/driver_api.h"
#include "fourfold/gpu.h"

namespace fourfold::cuda {

/// survey_gpus() for a driver that was opened, or was not. Never throws Error.
GpuSurvey survey(const DriverOpening& opening);

}  // namespace fourfold::cuda
