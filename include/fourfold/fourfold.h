// Everything a user may include, in one header.
#pragma once

#include "fourfold/backend.h"
#include "fourfold/benchmark.h"
#include "fourfold/error.h"
#include "fourfold/gpu.h"
#include "fourfold/kernels.h"
#include "fourfold/model.h"
#include "fourfold/moe.h"
#include "fourfold/plan.h"
#include "fourfold/reference.h"
#include "fourfold/settings.h"
#include "fourfold/tensor.h"
#include "fourfold/verify.h"
#include "fourfold/weights.h"
