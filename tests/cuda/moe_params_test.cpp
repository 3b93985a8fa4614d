// From a bound call to the arguments of the kernels: every member, by its source.
#include "cuda/moe_params.h"

#include <gtest/gtest.h>

#include "cuda/pack_experts.h"
#include "plan/plan_data.h"
#include "support/moe_layer.h"

namespace fourfold::cuda {
namespace {

/// An address that nobody follows.
template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}
std::uintptr_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct NamedExperts : CudaExperts {
  explicit NamedExperts(const Caps& caps) : CudaExperts(caps) {
    set_layer({cuda_weight_layout(caps), kernels::ScaleType::bf16, kernels::ScaleType::f16}, at<std::byte>(0x100000));
  }
};

/// A bound call of `tokens` tokens whose pointers are all different.
struct Call {
  explicit Call(const std::string& problem, std::int64_t tokens = 3) : Call(support::caps_of(problem), tokens) {}
  explicit Call(const Caps& caps, std::int64_t tokens = 3) {
    Device device = device_preset("h200");
    device.naive_kernels = true;
    bound.plan = plan(caps, device).data();
    bound.weights = std::make_shared<NamedExperts>(caps);
    bound.tokens = tokens;
    bound.x = at<void>(0x1000);
    bound.topk_ids = at<void>(0x2000);
    bound.topk_weights = at<float>(0x3000);
    bound.out = at<void>(0x4000);
    bound.invalid_ids = at<std::uint32_t>(0x5000);
    bound.expert_map = at<std::int32_t>(0x6000);
    bound.workspace = at<std::byte>(0x7000000);
  }
  std::uintptr_t segment(const std::string& name) const {
    for (const Segment& segment : bound.plan->segments)
      if (segment.name == name) return 0x7000000 + segment.offset_bytes;
    ADD_FAILURE() << "no segment " << name;
    return 0;
  }
  BoundMoe bound;
};

const char* const kProblem = "t9 k4 e6 h64 i24 nvfp4 bf16 silu";

TEST(RouteResolveParams, HasTheIdsAndTheirRange) {
  const Call call(kProblem);
  const kernels::RouteResolveParams params = route_resolve_params(call.bound);
  EXPECT_EQ(number(params.topk_ids), 0x2000u);
  EXPECT_EQ(number(params.invalid_ids), 0x5000u);
  EXPECT_EQ(number(params.expert_map), 0x6000u);
  EXPECT_EQ(number(params.route_expert), call.segment("route_expert"));
  EXPECT_EQ(params.routes, 3 * 4);
  EXPECT_EQ(params.id_count, 6);
  EXPECT_EQ(params.experts, 6);
}

TEST(RouteResolveParams, GlobalIdsHaveTheRangeOfTheMap) {
  Caps caps = support::caps_of(kProblem);
  caps.global_experts = 48;
  const kernels::RouteResolveParams params = route_resolve_params(Call(caps).bound);
  EXPECT_EQ(params.id_count, 48);
  EXPECT_EQ(params.experts, 6);
}

TEST(RouteResolveParams, SaysHowWideTheIdsAre) {
  Call call(kProblem);
  for (const bool wide : {false, true}) {
    call.bound.ids_are_64_bit = wide;
    EXPECT_EQ(route_resolve_params(call.bound).ids_are_64_bit, wide ? 1 : 0);
  }
}

TEST(RouteResolveParams, RoutesAreCountedIn64Bits) {
  EXPECT_EQ(route_resolve_params(Call("t33554431 k64 e6 h64 i24 nvfp4 bf16 silu", 33554431).bound).routes, 2147483584);
}

TEST(RouteSortParams, ReadsWhatResolveWroteAndWritesItsSegments) {
  const Call call(kProblem);
  const kernels::RouteSortParams params = route_sort_params(call.bound);
  EXPECT_EQ(number(params.route_expert), call.segment("route_expert"));
  EXPECT_EQ(number(params.expert_offsets), call.segment("expert_offsets"));
  EXPECT_EQ(number(params.sorted_routes), call.segment("sorted_routes"));
  EXPECT_EQ(params.routes, 12);
  EXPECT_EQ(params.experts, 6);
}

TEST(GateUpParams, HasTensorsSegmentsAndSizes) {
  const Call call(kProblem);
  const kernels::GateUpParams params = gate_up_params(call.bound);
  EXPECT_EQ(number(params.x), 0x1000u);
  EXPECT_EQ(number(params.topk_weights), 0x3000u);
  EXPECT_EQ(number(params.route_expert), call.segment("route_expert"));
  EXPECT_EQ(number(params.expert_offsets), call.segment("expert_offsets"));
  EXPECT_EQ(number(params.sorted_routes), call.segment("sorted_routes"));
  EXPECT_EQ(number(params.activated), call.segment("activated"));
  EXPECT_EQ(params.experts, 6);
  EXPECT_EQ(params.top_k, 4);
  EXPECT_EQ(params.hidden, 64);
  EXPECT_EQ(params.intermediate, 24);
  EXPECT_EQ(params.gate_up.reduction, 64);
  EXPECT_EQ(params.gate_up.codes_expert_bytes, 2 * 24 * 64 / 2);
}

TEST(DownParams, HasTensorsSegmentsAndSizes) {
  const Call call(kProblem);
  const kernels::DownParams params = down_params(call.bound);
  EXPECT_EQ(number(params.activated), call.segment("activated"));
  EXPECT_EQ(number(params.topk_weights), 0x3000u);
  EXPECT_EQ(number(params.route_expert), call.segment("route_expert"));
  EXPECT_EQ(number(params.out), 0x4000u);
  EXPECT_EQ(params.tokens, 3);
  EXPECT_EQ(params.top_k, 4);
  EXPECT_EQ(params.hidden, 64);
  EXPECT_EQ(params.intermediate, 24);
  EXPECT_EQ(params.down.reduction, 24);
  EXPECT_EQ(params.down.codes_expert_bytes, 64 * 24 / 2);
}

TEST(MoeParams, TheRouterWeightIsOnOneSide) {
  Caps caps = support::caps_of(kProblem);
  for (const bool on_input : {false, true}) {
    caps.router_weight_on_input = on_input;
    const Call call(caps);
    EXPECT_EQ(gate_up_params(call.bound).router_weight_on_input, on_input ? 1 : 0);
    EXPECT_EQ(down_params(call.bound).router_weight_on_input, on_input ? 1 : 0);
  }
}

TEST(GateUpParams, SiluHasALimitOnlyWhenOneIsGiven) {
  Caps caps = support::caps_of(kProblem);
  EXPECT_EQ(gate_up_params(Call(caps).bound).has_limit, 0);
  caps.activation.limit = 5.5f;
  const kernels::GateUpParams params = gate_up_params(Call(caps).bound);
  EXPECT_EQ(params.has_limit, 1);
  EXPECT_EQ(params.limit, 5.5f);
}

TEST(GateUpParams, SwigluOaiHasTheDefaultsOfGptOss) {
  const kernels::GateUpParams params = gate_up_params(Call("t9 k4 e6 h64 i24 mxfp4 bf16 swiglu_oai").bound);
  EXPECT_EQ(params.limit, 7.0f);
  EXPECT_EQ(params.alpha, 1.702f);
  EXPECT_EQ(params.beta, 1.0f);
}

TEST(GateUpParams, SwigluOaiTakesEveryOption) {
  Caps caps = support::caps_of("t9 k4 e6 h64 i24 mxfp4 bf16 swiglu_oai");
  caps.activation.limit = 3.0f;
  caps.activation.alpha = 0.25f;
  caps.activation.beta = -2.0f;
  const kernels::GateUpParams params = gate_up_params(Call(caps).bound);
  EXPECT_EQ(params.limit, 3.0f);
  EXPECT_EQ(params.alpha, 0.25f);
  EXPECT_EQ(params.beta, -2.0f);
}

TEST(MoeParams, EachProjectionHasItsOwnScaleType) {
  const Call call("t9 k4 e6 h64 i24 int4 g32 bf16 silu");
  EXPECT_EQ(gate_up_params(call.bound).gate_up.scale_type, kernels::ScaleType::bf16);
  EXPECT_EQ(down_params(call.bound).down.scale_type, kernels::ScaleType::f16);
}

}  // namespace
}  // namespace fourfold::cuda
