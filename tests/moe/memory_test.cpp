// Memory: guard pages round everything, poison, exact sizes, untouched inputs.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "core/hash.h"
#include "oracle/moe_oracle.h"
#include "support/guarded_bytes.h"
#include "support/moe_layer.h"
#include "support/routes.h"

using namespace fourfold;
using support::Bytes;
using support::Flush;
using support::GuardedBytes;
using support::MoeLayer;

namespace {

/// A copy of a tensor that touches a guard page with its first or last byte.
class GuardedTensor {
 public:
  GuardedTensor(ConstTensorView view, Flush flush) : view_(view) {
    if (view.absent()) return;
    bytes_ = std::make_unique<GuardedBytes>(view.bytes(), flush);
    if (view.bytes() > 0) std::memcpy(bytes_->data(), view.data, view.bytes());
    view_.data = bytes_->data();
  }
  ConstTensorView view() const { return view_; }

 private:
  ConstTensorView view_;
  std::unique_ptr<GuardedBytes> bytes_;
};

std::vector<std::unique_ptr<GuardedTensor>> guard(StackedExperts& experts, Flush flush) {
  std::vector<std::unique_ptr<GuardedTensor>> all;
  for (ConstTensorView* view : {&experts.gate_up_codes, &experts.gate_up_scales, &experts.gate_up_zeros,
                                &experts.gate_up_global, &experts.gate_up_bias, &experts.down_codes,
                                &experts.down_scales, &experts.down_zeros, &experts.down_global, &experts.down_bias}) {
    all.push_back(std::make_unique<GuardedTensor>(*view, flush));
    *view = all.back()->view();
  }
  return all;
}

constexpr const char* kProblems[] = {
    "t33 k2 e3 h72 i24 nvfp4 bf16 silu",          "t33 k1 e1 h64 i464 nvfp4 bf16 relu2",
    "t33 k1 e1 h64 i496 mxfp4 bf16 silu bias",    "t33 k2 e3 h136 i8 int4 g32 f16 gelu_tanh",
    "t33 k3 e2 h8 i40 int4 g128 zp f32 silu eg5", "t33 k2 e3 h120 i352 int4 grow bf16 situ",
    "t33 k1 e1 h2880 i40 mxfp4 bf16 swiglu_oai"};

}  // namespace

class Memory : public testing::TestWithParam<const char*> {};

// Both ends of every buffer touch a page that ends the program when it is read or written; all content is poison.
TEST_P(Memory, NothingOutsideIsTouchedAndPoisonDoesNotMatter) {
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 1);
  for (const auto& backend : support::backends())
    for (Flush flush : {Flush::begin, Flush::end}) {
      StackedExperts stacked = experts.stacked();
      const auto guards = guard(stacked, flush);
      const MoeLayer layer(caps, stacked, *backend);
      GuardedBytes workspace(layer.plan().workspace_bytes(), flush);
      for (std::int64_t tokens : {1, 3, 8, 33}) {
        const RandomCall call = random_call(caps, tokens, tokens, {.plant_dead_ids = true});
        const Bytes clean = layer.run(call.tensors);
        ASSERT_TRUE(support::fits_oracle(caps, experts.stacked(), call.tensors, clean));
        const GuardedTensor x(call.tensors.x, flush), ids(call.tensors.topk_ids, flush),
            weights(call.tensors.topk_weights, flush), map(call.tensors.expert_map, flush);
        MoeTensors inputs = call.tensors;
        inputs.x = x.view();
        inputs.topk_ids = ids.view();
        inputs.topk_weights = weights.view();
        inputs.expert_map = map.view();
        GuardedBytes out(clean.size(), flush);
        for (int poison : {0x00, 0xff, 0x7f, 0x5a}) {
          workspace.fill(poison);
          out.fill(0xff);
          layer.run_in(inputs, workspace.span(), out.data());
          ASSERT_EQ(std::memcmp(out.data(), clean.data(), clean.size()), 0)
              << tokens << " tokens, poison " << poison << ", " << cpu_isa_name(backend->device().isa);
        }
        out.fill(0xff);  // and once more with whatever the last run left
        layer.run_in(inputs, workspace.span(), out.data());
        ASSERT_EQ(std::memcmp(out.data(), clean.data(), clean.size()), 0) << tokens << " tokens, replay";
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Problems, Memory, testing::ValuesIn(kProblems));

namespace {

void expect_usage(const MoeLayer& layer, const MoeTensors& inputs, std::span<std::byte> workspace, void* out) {
  try {
    layer.run_in(inputs, workspace, out);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
  }
}

}  // namespace

TEST(Workspace, OneByteLessIsRefused) {
  const Caps caps = support::caps_of("t5 k2 e3 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 5, 1);
  const MoeLayer layer(caps, experts.stacked());
  Bytes out(call.tensors.x.bytes());
  ASSERT_GT(layer.plan().workspace_bytes(), 0u);
  ASSERT_EQ(layer.workspace().size(), layer.plan().workspace_bytes());
  expect_usage(layer, call.tensors, layer.workspace().first(layer.plan().workspace_bytes() - 1), out.data());
  layer.run_in(call.tensors, layer.workspace(), out.data());
}

TEST(Workspace, AMisalignedBaseIsRefused) {
  const Caps caps = support::caps_of("t5 k2 e3 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 5, 1);
  const MoeLayer layer(caps, experts.stacked());
  Workspace larger = Workspace::allocate(layer.plan().workspace_bytes() + 256, layer.backend());
  Bytes out(call.tensors.x.bytes());
  for (std::size_t shift : {1, 2, 8, 64, 128, 255})
    expect_usage(layer, call.tensors, larger.span().subspan(shift), out.data());
  layer.run_in(call.tensors, larger.span().subspan(256), out.data());
}

TEST(Workspace, AnOutputInsideItOrOverAnInputIsRefused) {
  const Caps caps = support::caps_of("t5 k2 e3 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  RandomCall call = random_call(caps, 5, 1);
  const MoeLayer layer(caps, experts.stacked());
  expect_usage(layer, call.tensors, layer.workspace(), layer.workspace().data());
  expect_usage(layer, call.tensors, layer.workspace(), call.x.data());
  expect_usage(layer, call.tensors, layer.workspace(), call.x.data() + call.x.size() - 2);
}

TEST(Workspace, SeveralBindingsTakeTurns) {
  const Caps small = support::caps_of("t3 k2 e3 h64 i32 nvfp4 bf16 silu");
  const Caps large = support::caps_of("t65 k3 e5 h136 i72 mxfp4 f16 silu");
  const RandomExperts small_experts(small, 1), large_experts(large, 2);
  const RandomCall small_call = random_call(small, 3, 1), large_call = random_call(large, 65, 2);
  const MoeLayer a(small, small_experts.stacked()), b(large, large_experts.stacked());
  const Bytes small_out = a.run(small_call.tensors), large_out = b.run(large_call.tensors);
  ASSERT_GE(b.workspace().size(), a.workspace().size());
  for (int turn = 0; turn < 3; ++turn) {
    Bytes out(small_out.size());
    a.run_in(small_call.tensors, b.workspace(), out.data());
    EXPECT_EQ(out, small_out);
    out.resize(large_out.size());
    b.run_in(large_call.tensors, b.workspace(), out.data());
    EXPECT_EQ(out, large_out);
  }
}

TEST(Workspace, ALargerPlanGivesTheSameBits) {
  const Caps exact = support::caps_of("t24 k2 e5 h64 i32 nvfp4 bf16 silu");
  Caps larger = exact;
  larger.max_tokens = 640;
  const RandomExperts experts(exact, 1);
  const RandomCall call = random_call(exact, 24, 1);
  for (const auto& backend : support::backends())
    EXPECT_EQ(MoeLayer(exact, experts.stacked(), *backend).run(call.tensors),
              MoeLayer(larger, experts.stacked(), *backend).run(call.tensors));
}

// High water never depends on the routes: the exact workspace serves every token on one expert.
TEST(Workspace, SkewedRoutesFitTheSameBytes) {
  const Caps caps = support::caps_of("t257 k4 e8 h64 i32 nvfp4 bf16 silu");
  const RandomExperts experts(caps, 1);
  const MoeLayer layer(caps, experts.stacked());
  GuardedBytes workspace(layer.plan().workspace_bytes(), Flush::end);
  for (std::int64_t expert : {-1, 0, 7}) {
    RandomCall call = random_call(caps, 257, 1);
    support::set_ids(call, std::vector<std::int64_t>(257 * 4, expert));
    GuardedBytes out(call.tensors.x.bytes(), Flush::end);
    layer.run_in(call.tensors, workspace.span(), out.data());
    EXPECT_TRUE(
        support::fits_oracle(caps, experts.stacked(), call.tensors, Bytes(out.span().begin(), out.span().end())));
  }
}

TEST(Inputs, AreNeverWritten) {
  const Caps caps = support::caps_of("t33 k2 e3 h72 i24 nvfp4 bf16 silu eg5 bias");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 33, 1, {.plant_dead_ids = true});
  const MoeLayer layer(caps, experts.stacked());
  const auto digest = [&] {
    std::uint64_t sum = 0;
    for (const ConstTensorView& view :
         {call.tensors.x, call.tensors.topk_ids, call.tensors.topk_weights, call.tensors.expert_map,
          experts.stacked().gate_up_codes, experts.stacked().down_scales})
      sum = sum * 31 + hash64(view.data, view.bytes());
    return sum;
  };
  const std::uint64_t before = digest();
  layer.run(call.tensors);
  EXPECT_EQ(digest(), before);
}
