// From a bound call to the arguments of its launches. Pure; pointers are copied, never followed.
#pragma once

#include "backend/backend_interface.h"
#include "kernels/params/moe_params.h"
#include "kernels/params/tile_params.h"
#include "plan/cuda_launch.h"

namespace fourfold::cuda {

// `bound` has at least one token, a CUDA plan and weights that are CudaExperts.
kernels::RouteResolveParams route_resolve_params(const BoundMoe& bound) noexcept;
kernels::RouteSortParams route_sort_params(const BoundMoe& bound) noexcept;
kernels::GateUpParams gate_up_params(const BoundMoe& bound) noexcept;
kernels::DownParams down_params(const BoundMoe& bound) noexcept;

// The same for a plan of the tile family; `launch` is one of the plan's.
kernels::RouteTilesParams route_tiles_params(const BoundMoe& bound, const CudaLaunch& launch) noexcept;
kernels::GateUpTilesParams gate_up_tiles_params(const BoundMoe& bound) noexcept;
kernels::DownTilesParams down_tiles_params(const BoundMoe& bound, const CudaLaunch& launch) noexcept;
kernels::CombineRowsParams combine_rows_params(const BoundMoe& bound, const CudaLaunch& launch) noexcept;

}  // namespace fourfold::cuda
