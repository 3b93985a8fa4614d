// Fills the argument structs of kernels/params from the plan's segments, the caps and the call's tensors.
#include "cuda/moe_params.h"

#include "cuda/pack_experts.h"
#include "plan/plan_data.h"

namespace fourfold::cuda {
namespace {

// Defaults of swiglu_oai (gpt-oss); the kernels of other activations do not read alpha and beta.
constexpr float kLimit = 7.0f, kAlpha = 1.702f, kBeta = 1.0f;

// Enumerators of ActivationKind and of the kernels' Activation are one list.
static_assert(static_cast<int>(ActivationKind::relu2) == static_cast<int>(kernels::Activation::relu2) &&
              static_cast<int>(ActivationKind::situ) == static_cast<int>(kernels::Activation::situ));

template <class Element>
Element* segment(const BoundMoe& bound, int index) noexcept {
  if (index < 0) return nullptr;
  return reinterpret_cast<Element*>(bound.workspace +
                                    bound.plan->segments[static_cast<std::size_t>(index)].offset_bytes);
}

const CudaExperts& experts_of(const BoundMoe& bound) noexcept {
  return static_cast<const CudaExperts&>(*bound.weights);
}

/// What both routing kernels that read ids take.
template <class Params>
void set_ids(const BoundMoe& bound, Params& params) noexcept {
  const Caps& caps = bound.plan->caps;
  params.topk_ids = bound.topk_ids;
  params.expert_map = bound.expert_map;
  params.invalid_ids = bound.invalid_ids;
  params.routes = bound.tokens * caps.top_k;
  params.id_count = caps.id_count();
  params.experts = static_cast<kernels::Int32>(caps.experts);
  params.ids_are_64_bit = bound.ids_are_64_bit ? 1 : 0;
}

/// The routing weights and what both sides of them depend on.
template <class Params>
void set_weighting(const BoundMoe& bound, Params& params) noexcept {
  const Caps& caps = bound.plan->caps;
  params.topk_weights = bound.topk_weights;
  params.top_k = static_cast<kernels::Int32>(caps.top_k);
  params.hidden = static_cast<kernels::Int32>(caps.hidden);
  params.router_weight_on_input = caps.router_weight_on_input ? 1 : 0;
}

/// What every first projection takes besides routes and weights.
template <class Params>
void set_first_projection(const BoundMoe& bound, Params& params) noexcept {
  const Caps& caps = bound.plan->caps;
  set_weighting(bound, params);
  params.x = static_cast<const kernels::UInt16*>(bound.x);
  params.activated = segment<kernels::UInt16>(bound, bound.plan->cuda.activated);
  params.intermediate = static_cast<kernels::Int32>(caps.intermediate);
  params.has_limit = caps.activation.limit.has_value() ? 1 : 0;
  params.limit = caps.activation.limit.value_or(kLimit);
  params.alpha = caps.activation.alpha.value_or(kAlpha);
  params.beta = caps.activation.beta.value_or(kBeta);
}

/// What every second projection takes besides routes and weights.
template <class Params>
void set_second_projection(const BoundMoe& bound, Params& params) noexcept {
  set_weighting(bound, params);
  params.activated = segment<kernels::UInt16>(bound, bound.plan->cuda.activated);
  params.out = static_cast<kernels::UInt16*>(bound.out);
  params.tokens = bound.tokens;
  params.intermediate = static_cast<kernels::Int32>(bound.plan->caps.intermediate);
}

/// What routing of the tile kernels writes and both projections read.
template <class Params>
void set_tiles(const BoundMoe& bound, Params& params) noexcept {
  const CudaSegments& segments = bound.plan->cuda;
  params.sorted_routes = segment<kernels::Int32>(bound, segments.sorted_routes);
  params.tiles = segment<kernels::TokenTile>(bound, segments.tiles);
  params.counts = segment<kernels::Int32>(bound, segments.counts);
}

}  // namespace

kernels::RouteResolveParams route_resolve_params(const BoundMoe& bound) noexcept {
  kernels::RouteResolveParams params{};
  set_ids(bound, params);
  params.route_expert = segment<kernels::Int32>(bound, bound.plan->cuda.route_expert);
  return params;
}

kernels::RouteSortParams route_sort_params(const BoundMoe& bound) noexcept {
  const Caps& caps = bound.plan->caps;
  kernels::RouteSortParams params{};
  params.route_expert = segment<kernels::Int32>(bound, bound.plan->cuda.route_expert);
  params.expert_offsets = segment<kernels::Int32>(bound, bound.plan->cuda.expert_offsets);
  params.sorted_routes = segment<kernels::Int32>(bound, bound.plan->cuda.sorted_routes);
  params.routes = bound.tokens * caps.top_k;
  params.experts = static_cast<kernels::Int32>(caps.experts);
  return params;
}

kernels::GateUpParams gate_up_params(const BoundMoe& bound) noexcept {
  kernels::GateUpParams params{};
  set_first_projection(bound, params);
  params.route_expert = segment<kernels::Int32>(bound, bound.plan->cuda.route_expert);
  params.expert_offsets = segment<kernels::Int32>(bound, bound.plan->cuda.expert_offsets);
  params.sorted_routes = segment<kernels::Int32>(bound, bound.plan->cuda.sorted_routes);
  params.gate_up = experts_of(bound).gate_up();
  params.experts = static_cast<kernels::Int32>(bound.plan->caps.experts);
  return params;
}

kernels::DownParams down_params(const BoundMoe& bound) noexcept {
  kernels::DownParams params{};
  set_second_projection(bound, params);
  params.route_expert = segment<kernels::Int32>(bound, bound.plan->cuda.route_expert);
  params.down = experts_of(bound).down();
  return params;
}

kernels::RouteTilesParams route_tiles_params(const BoundMoe& bound, const CudaLaunch& launch) noexcept {
  kernels::RouteTilesParams params{};
  set_ids(bound, params);
  set_tiles(bound, params);
  params.route_position = segment<kernels::Int32>(bound, bound.plan->cuda.route_position);
  params.token_tile = launch.token_tile;
  return params;
}

kernels::GateUpTilesParams gate_up_tiles_params(const BoundMoe& bound) noexcept {
  kernels::GateUpTilesParams params{};
  set_first_projection(bound, params);
  set_tiles(bound, params);
  params.gate_up = experts_of(bound).gate_up_units();
  params.activation = static_cast<kernels::Activation>(bound.plan->caps.activation.kind);
  return params;
}

kernels::DownTilesParams down_tiles_params(const BoundMoe& bound, const CudaLaunch& launch) noexcept {
  kernels::DownTilesParams params{};
  set_second_projection(bound, params);
  set_tiles(bound, params);
  params.rows = segment<float>(bound, bound.plan->cuda.rows);
  params.down = experts_of(bound).down_units();
  params.panel_begin = static_cast<kernels::Int32>(launch.panel_begin);
  params.panel_columns = static_cast<kernels::Int32>(launch.panel_columns);
  return params;
}

kernels::CombineRowsParams combine_rows_params(const BoundMoe& bound, const CudaLaunch& launch) noexcept {
  kernels::CombineRowsParams params{};
  set_weighting(bound, params);
  params.rows = segment<const float>(bound, bound.plan->cuda.rows);
  params.route_position = segment<const kernels::Int32>(bound, bound.plan->cuda.route_position);
  params.out = static_cast<kernels::UInt16*>(bound.out);
  params.tokens = bound.tokens;
  params.panel_begin = static_cast<kernels::Int32>(launch.panel_begin);
  params.panel_columns = static_cast<kernels::Int32>(launch.panel_columns);
  return params;
}

}  // namespace fourfold::cuda
