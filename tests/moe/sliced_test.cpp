// Batches longer than a plan serves: the same bits, all checks before the first launch.
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "support/moe_layer.h"

using namespace fourfold;

namespace {

constexpr std::int64_t kTokens = 23, kSlice = 5;  // the last slice is short

struct Sliced : testing::Test {
  Caps whole_caps = support::caps_of("t23 k3 e5 h72 i40 nvfp4 bf16 silu");
  Caps caps = [this] {
    Caps small = whole_caps;
    small.max_tokens = kSlice;
    return small;
  }();
  RandomExperts experts{whole_caps, 3};
  RandomCall call = random_call(whole_caps, kTokens, 4, {.plant_dead_ids = true});
  support::MoeLayer layer{caps, experts.stacked()};
  support::Bytes out = support::Bytes(kTokens * 72 * 2, std::byte{0xff});
  std::uint32_t invalid = 0;

  MoeTensors tensors() {
    MoeTensors all = call.tensors;
    all.weights = &layer.weights();
    all.out = TensorView(out.data(), DType::bf16, {kTokens, 72});
    all.invalid_ids = &invalid;
    return all;
  }
  std::string refusal(const MoeTensors& all) {
    try {
      run_sliced(layer.plan(), layer.backend(), all, layer.workspace());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "";
  }
  bool untouched() const {
    return std::all_of(out.begin(), out.end(), [](std::byte byte) { return byte == std::byte{0xff}; });
  }
};

TEST_F(Sliced, HasTheBitsOfOneCallOfALargerPlan) {
  std::uint32_t expected_invalid = 0;
  const support::MoeLayer whole(whole_caps, experts.stacked());
  const support::Bytes expected = whole.run(call.tensors, &expected_invalid);
  run_sliced(layer.plan(), layer.backend(), tensors(), layer.workspace());
  EXPECT_EQ(out, expected);
  EXPECT_EQ(invalid, expected_invalid);
  EXPECT_GT(invalid, 0u);
}

TEST_F(Sliced, HasOneBindingASlice) {
  EXPECT_EQ(bind_sliced(layer.plan(), layer.backend(), tensors(), layer.workspace()).size(), 5u);
  EXPECT_TRUE(untouched());
}

TEST_F(Sliced, ServesABatchThatFitsWithOneBinding) {
  MoeTensors rows = support::rows_of(tensors(), 0, kSlice);
  rows.weights = &layer.weights();
  rows.out = TensorView(out.data(), DType::bf16, {kSlice, 72});
  EXPECT_EQ(bind_sliced(layer.plan(), layer.backend(), rows, layer.workspace()).size(), 1u);
}

TEST_F(Sliced, ServesNoTokens) {
  MoeTensors rows = support::rows_of(tensors(), 0, 0);
  rows.weights = &layer.weights();
  rows.out = TensorView(out.data(), DType::bf16, {0, 72});
  run_sliced(layer.plan(), layer.backend(), rows, layer.workspace());
  EXPECT_TRUE(untouched());
}

TEST_F(Sliced, RefusesRowCountsThatDisagreeBeforeAnythingRuns) {
  MoeTensors all = tensors();
  all.topk_weights.shape[0] = kTokens - 1;
  EXPECT_NE(refusal(all).find("topk_weights has 2 dimensions and 22 rows"), std::string::npos);
  EXPECT_TRUE(untouched());
}

TEST_F(Sliced, RefusesAMissingTensorBeforeAnythingRuns) {
  MoeTensors all = tensors();
  all.topk_ids.data = nullptr;
  EXPECT_NE(refusal(all).find("topk_ids has a null data pointer"), std::string::npos);
  EXPECT_TRUE(untouched());
}

TEST_F(Sliced, RefusesAnOutputThatMeetsAnotherSlicesInput) {
  // out's second slice lies on x's first one: slice by slice nothing overlaps.
  support::Bytes memory(2 * kTokens * 72 * 2);
  MoeTensors all = tensors();
  std::memcpy(memory.data() + kSlice * 72 * 2, all.x.data, kTokens * 72 * 2);
  all.x.data = memory.data() + kSlice * 72 * 2;
  all.out.data = memory.data();
  EXPECT_NE(refusal(all).find("overlaps"), std::string::npos);
}

TEST_F(Sliced, RefusesAWrongDtypeOfALaterSliceBeforeAnythingRuns) {
  MoeTensors all = tensors();
  all.topk_ids.dtype = DType::f32;
  EXPECT_NE(refusal(all).find("topk_ids is F32"), std::string::npos);
  EXPECT_TRUE(untouched());
}

TEST_F(Sliced, RefusesEveryShapeAndDtypeBeforeItComputesAnOffset) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const std::vector<std::pair<std::function<void(MoeTensors&)>, std::string>> table{
      {[](MoeTensors& t) { t.x.dtype = DType::f4_e2m1; }, "x is F4"},
      {[](MoeTensors& t) { t.out.dtype = DType::f4_e2m1; }, "out is F4"},
      {[](MoeTensors& t) { t.topk_ids.dtype = static_cast<DType>(200); }, "topk_ids is dtype 200"},
      {[](MoeTensors& t) { t.topk_weights.dtype = DType::f4_e2m1; }, "topk_weights is F4"},
      {[](MoeTensors& t) { t.x.shape[1] = kHuge; }, "x has shape [23, 4611686018427387904]"},
      {[](MoeTensors& t) { t.topk_ids.shape[1] = kHuge; }, "topk_ids has shape"},
      {[](MoeTensors& t) { t.topk_weights.shape[1] = -1; }, "topk_weights has shape [23, -1]"},
      {[](MoeTensors& t) { t.out.shape[1] = kHuge; }, "out has shape"},
      {[](MoeTensors& t) { t.expert_map = {t.x.data, DType::f4_e2m1, {5}}; }, "takes none"},
      {[](MoeTensors& t) { t.expert_map = {t.x.data, DType::i32, {kHuge, kHuge}}; }, "takes none"},
      {[](MoeTensors& t) {
         t.x.shape[0] = t.out.shape[0] = t.topk_ids.shape[0] = t.topk_weights.shape[0] = kHuge;
       },
       "leaves the address space"},
  };
  for (const auto& [spoil, part] : table) {
    MoeTensors all = tensors();
    spoil(all);
    const std::string text = refusal(all);
    EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    EXPECT_TRUE(untouched());
  }
}

TEST(PoisonWorkspace, ChangesNoResultAndLeavesNoOldByte) {
  const Caps caps = support::caps_of("t7 k3 e5 h72 i40 mxfp4 bf16 silu");
  const RandomExperts experts(caps, 3);
  const RandomCall call = random_call(caps, 7, 4);
  const support::Bytes expected = support::MoeLayer(caps, experts.stacked()).run(call.tensors);
  Settings settings;
  settings.poison_workspace = true;
  const auto backend = cpu_backend(settings);
  const support::MoeLayer poisoned(caps, experts.stacked(), *backend);
  std::fill(poisoned.workspace().begin(), poisoned.workspace().end(), std::byte{0x11});
  EXPECT_EQ(poisoned.run(call.tensors), expected);
  // Bytes that a run does not write (ends of segments, alignment) hold the poison, not what was there.
  EXPECT_LT(std::count(poisoned.workspace().begin(), poisoned.workspace().end(), std::byte{0x11}) * 50,
            static_cast<std::ptrdiff_t>(poisoned.workspace().size()));
}

}  // namespace
