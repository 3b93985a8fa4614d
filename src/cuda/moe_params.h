// From a bound call to the arguments of its launches. Pure; pointers are copied, never followed.
#pragma once

#include "backend/backend_interface.h"
#include "kernels/params/moe_params.h"

namespace fourfold::cuda {

// `bound` has at least one token, a CUDA plan and weights that are CudaExperts.
kernels::RouteResolveParams route_resolve_params(const BoundMoe& bound) noexcept;
kernels::RouteSortParams route_sort_params(const BoundMoe& bound) noexcept;
kernels::GateUpParams gate_up_params(const BoundMoe& bound) noexcept;
kernels::DownParams down_params(const BoundMoe& bound) noexcept;

}  // namespace fourfold::cuda
