// The owner of a device, its workspaces, and when packed weights fit a plan.
#include "fourfold/backend.h"

#include <gtest/gtest.h>

#include <functional>

#include "fake_backend.h"

namespace fourfold {
namespace {

TEST(Backend, ANullInterfaceIsRefused) {
  EXPECT_EQ(error_of([] { Backend backend(nullptr); }).code(), ErrorCode::usage);
}

TEST(Backend, PassesDeviceAndProbesThrough) {
  FakeCounts counts;
  Backend backend(std::make_unique<FakeBackend>(counts));
  EXPECT_EQ(backend.device().name, "cpu");
  EXPECT_EQ(measure_probes(backend).bf16_gflop_per_s, 2);
}

TEST(Workspace, IsAlignedAndExact) {
  FakeCounts counts;
  Backend backend(std::make_unique<FakeBackend>(counts));
  const Workspace workspace = Workspace::allocate(1000, backend);
  EXPECT_EQ(workspace.span().size(), 1000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.span().data()) % 256, 0u);
  EXPECT_EQ(counts.live_bytes, 1000u);
}

TEST(Workspace, IsGivenBackOnce) {
  FakeCounts counts;
  Backend backend(std::make_unique<FakeBackend>(counts));
  {
    Workspace first = Workspace::allocate(1000, backend);
    Workspace second = std::move(first);
    Workspace third = Workspace::allocate(500, backend);
    third = std::move(second);
    EXPECT_EQ(third.span().size(), 1000u);
    EXPECT_EQ(first.span().size(), 0u);
  }
  EXPECT_EQ(counts.allocated, 2);
  EXPECT_EQ(counts.released, 2);
  EXPECT_EQ(counts.live_bytes, 0u);
}

TEST(Workspace, NoBytesAllocateNothing) {
  FakeCounts counts;
  Backend backend(std::make_unique<FakeBackend>(counts));
  EXPECT_EQ(Workspace::allocate(std::uint64_t{0}, backend).span().data(), nullptr);
  EXPECT_EQ(counts.allocated, 0);
  EXPECT_EQ(counts.released, 0);
}

TEST(Workspace, OfAPlanHasThePlansBytes) {
  FakeCounts counts;
  Backend backend(std::make_unique<FakeBackend>(counts));
  const Plan planned = plan(parse_problem("t64 k2 e4 h64 i32").caps, backend.device());
  EXPECT_EQ(Workspace::allocate(planned, backend).span().size(), planned.workspace_bytes());
}

TEST(ExpertWeights, EmptyOnesHaveNoBytes) {
  EXPECT_TRUE(ExpertWeights().empty());
  EXPECT_EQ(ExpertWeights().bytes(), 0u);
  EXPECT_EQ(ExpertWeights(std::make_shared<FakePacked>(Caps{}, 99)).bytes(), 99u);
}

struct Change {
  const char* name;
  std::function<void(Caps&)> apply;
  bool same;
};

TEST(SameLayout, DependsOnWhatIsPackedAndOnNothingElse) {
  const Change table[] = {
      {"nothing", [](Caps&) {}, true},
      {"max_tokens", [](Caps& c) { c.max_tokens = 99; }, true},
      {"top_k", [](Caps& c) { c.top_k = 1; }, true},
      {"global_experts", [](Caps& c) { c.global_experts = 64; }, true},
      {"dtype", [](Caps& c) { c.activation_dtype = DType::f16; }, true},
      {"limit", [](Caps& c) { c.activation.limit = 7.f; }, true},
      {"gated kind", [](Caps& c) { c.activation.kind = ActivationKind::situ; }, true},
      {"on_input", [](Caps& c) { c.router_weight_on_input = true; }, true},
      {"invariant", [](Caps& c) { c.batch_invariant = true; }, true},
      {"experts", [](Caps& c) { c.experts = 5; }, false},
      {"hidden", [](Caps& c) { c.hidden = 72; }, false},
      {"intermediate", [](Caps& c) { c.intermediate = 40; }, false},
      {"format", [](Caps& c) { c.format = FormatSpec::mxfp4(); }, false},
      {"group", [](Caps& c) { c.format.group_size = 32; }, false},
      {"zero points", [](Caps& c) { c.format.zero_points = true; }, false},
      {"no gate", [](Caps& c) { c.activation.kind = ActivationKind::relu2; }, false},
      {"gate_up_bias", [](Caps& c) { c.gate_up_bias = true; }, false},
      {"down_bias", [](Caps& c) { c.down_bias = true; }, false},
  };
  const Caps base = parse_problem("t64 k2 e4 h64 i32").caps;
  for (const Change& change : table) {
    Caps other = base;
    change.apply(other);
    EXPECT_EQ(same_layout(base, other), change.same) << change.name;
    EXPECT_EQ(same_layout(other, base), change.same) << change.name;
  }
}

}  // namespace
}  // namespace fourfold
