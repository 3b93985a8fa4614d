// Packing a layer: every byte of every section is the source's, at the offset of src/plan/cuda_weight_layout.h, written
// once; one expert is in host memory at a time.
#include "cuda/pack_experts.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "core/float16.h"
#include "fourfold/error.h"
#include "fourfold/verify.h"
#include "support/moe_layer.h"

namespace fourfold::cuda {
namespace {

using support::Bytes;

constexpr std::byte kUnwritten{0xa5}, kStale{0x5a};

/// Packs into host memory and keeps the books.
struct Packing {
  PackTarget target() {
    return {[this](std::uint64_t layer_bytes, std::uint64_t expert_bytes) {
              ++begins;
              bytes.assign(layer_bytes, kUnwritten);
              writes.assign(layer_bytes, 0);
              staging.assign(expert_bytes, kStale);
              return std::span(staging);
            },
            [this](std::uint64_t offset, std::span<const std::byte> piece) {
              ASSERT_LE(offset + piece.size(), bytes.size());
              EXPECT_GE(piece.data(), staging.data());
              EXPECT_LE(piece.data() + piece.size(), staging.data() + staging.size());
              std::memcpy(bytes.data() + offset, piece.data(), piece.size());
              for (std::size_t i = 0; i < piece.size(); ++i) ++writes[offset + i];
            },
            [this] {
              ++experts_done;
              std::fill(staging.begin(), staging.end(), kStale);
            }};
  }
  int begins = 0, experts_done = 0;
  Bytes bytes, staging;
  std::vector<int> writes;  // of each byte
};

/// Counts who is asked for, and may change what a source gives.
struct WatchedSource : ExpertSource {
  WatchedSource(const StackedExperts& experts, const Caps& caps) : source(stacked_source(experts, caps)) {}
  ExpertMatrices expert(std::int64_t index) override {
    asked.push_back(index);
    ExpertMatrices matrices = source->expert(index);
    if (change) change(index, matrices);
    return matrices;
  }
  std::unique_ptr<ExpertSource> source;
  std::vector<std::int64_t> asked;
  std::function<void(std::int64_t, ExpertMatrices&)> change;
};

struct Packed {
  explicit Packed(const std::string& problem) : Packed(support::caps_of(problem)) {}
  explicit Packed(const Caps& caps_in, GateUpOrder order = GateUpOrder::gate_up) : caps(caps_in), random(caps_in, 7) {
    stacked = random.stacked();
    stacked.order = order;
    WatchedSource source(stacked, caps);
    layer = pack_layer(caps, source, packing.target());
    asked = source.asked;
  }
  const std::byte* at(std::int64_t offset) const { return packing.bytes.data() + offset; }
  Caps caps;
  RandomExperts random;
  StackedExperts stacked;
  Packing packing;
  PackedLayer layer;
  std::vector<std::int64_t> asked;
};

/// Whether the section at `offset` is the tensor, byte by byte; when there is no tensor, whether there is no section.
testing::AssertionResult holds(const Packed& packed, std::int64_t offset, const ConstTensorView& tensor) {
  if (tensor.absent() || offset < 0)
    return tensor.absent() == (offset < 0) ? testing::AssertionSuccess() : testing::AssertionFailure() << "only one";
  const auto* expected = static_cast<const std::byte*>(tensor.data);
  for (std::int64_t i = 0; i < tensor.bytes(); ++i)
    if (packed.at(offset)[i] != expected[i]) return testing::AssertionFailure() << "byte " << i << " differs";
  return testing::AssertionSuccess();
}

/// The same for biases, which are bf16 in the source and fp32 in the section.
testing::AssertionResult holds_bias(const Packed& packed, std::int64_t offset, const ConstTensorView& tensor) {
  if (tensor.absent()) return holds(packed, offset, tensor);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    float value = 0;
    std::memcpy(&value, packed.at(offset + 4 * i), 4);
    if (value != bf16_to_float(tensor.as<std::uint16_t>()[i]))
      return testing::AssertionFailure() << "element " << i << " is " << value;
  }
  return testing::AssertionSuccess();
}

/// Formats, gating, biases, one or more groups, tails of groups, one expert or many.
const char* const kProblems[] = {
    "t1 k1 e3 h64 i32 nvfp4 bf16 silu",
    "t1 k1 e3 h64 i32 nvfp4 bf16 silu bias",
    "t1 k1 e3 h72 i40 nvfp4 bf16 relu2",
    "t1 k1 e1 h40 i8 nvfp4 f16 relu2 bias",
    "t1 k1 e2 h64 i32 mxfp4 bf16 silu down_bias",
    "t1 k1 e2 h104 i56 mxfp4 bf16 relu2",
    "t1 k1 e3 h64 i32 int4 g32 bf16 silu bias",
    "t1 k1 e3 h72 i40 int4 g32 zp bf16 silu",
    "t1 k1 e2 h64 i32 int4 grow zp bf16 relu2 bias",
    "t1 k1 e5 h8 i8 int4 grow f16 gelu_tanh",
};

class PackExperts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Problems, PackExperts, testing::ValuesIn(kProblems));

TEST_P(PackExperts, EverySectionIsItsTensor) {
  const Packed packed(GetParam());
  const CudaMatrixLayout &gate_up = packed.layer.layout.gate_up, &down = packed.layer.layout.down;
  EXPECT_TRUE(holds(packed, gate_up.codes, packed.stacked.gate_up_codes));
  EXPECT_TRUE(holds(packed, gate_up.scales, packed.stacked.gate_up_scales));
  EXPECT_TRUE(holds(packed, gate_up.zeros, packed.stacked.gate_up_zeros));
  EXPECT_TRUE(holds(packed, gate_up.global, packed.stacked.gate_up_global));
  EXPECT_TRUE(holds_bias(packed, gate_up.bias, packed.stacked.gate_up_bias));
  EXPECT_TRUE(holds(packed, down.codes, packed.stacked.down_codes));
  EXPECT_TRUE(holds(packed, down.scales, packed.stacked.down_scales));
  EXPECT_TRUE(holds(packed, down.zeros, packed.stacked.down_zeros));
  EXPECT_TRUE(holds(packed, down.global, packed.stacked.down_global));
  EXPECT_TRUE(holds_bias(packed, down.bias, packed.stacked.down_bias));
}

TEST_P(PackExperts, EveryByteOfEverySectionIsWrittenOnceAndNoOther) {
  const Packed packed(GetParam());
  std::vector<int> expected(packed.packing.writes.size(), 0);
  const auto section = [&](std::int64_t offset, std::int64_t expert_bytes) {
    if (offset < 0) return;
    std::fill_n(expected.begin() + offset, packed.caps.experts * expert_bytes, 1);
  };
  for (const CudaMatrixLayout& matrix : {packed.layer.layout.gate_up, packed.layer.layout.down}) {
    section(matrix.codes, matrix.rows * matrix.k / 2);
    section(matrix.scales, matrix.rows * matrix.groups * matrix.scale_bytes);
    section(matrix.zeros, matrix.rows * matrix.groups);
    section(matrix.global, matrix.parts * 4);
    section(matrix.bias, matrix.rows * 4);
  }
  EXPECT_EQ(packed.packing.writes, expected);
}

TEST_P(PackExperts, HostMemoryIsOneExpertAndEachIsAskedForOnce) {
  const Packed packed(GetParam());
  Caps one = packed.caps;
  one.experts = 1;
  EXPECT_EQ(packed.packing.begins, 1);
  EXPECT_EQ(packed.packing.staging.size(), static_cast<std::size_t>(cuda_weight_layout(one).total_bytes));
  EXPECT_EQ(packed.packing.bytes.size(), static_cast<std::size_t>(cuda_weight_layout(packed.caps).total_bytes));
  std::vector<std::int64_t> ascending;
  for (std::int64_t i = 0; i < packed.caps.experts; ++i) ascending.push_back(i);
  EXPECT_EQ(packed.asked, ascending);
  EXPECT_EQ(packed.packing.experts_done, packed.caps.experts);
}

class PackOrders : public testing::TestWithParam<GateUpOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, PackOrders,
                         testing::Values(GateUpOrder::gate_up, GateUpOrder::up_gate, GateUpOrder::interleaved));

TEST_P(PackOrders, GateRowsComeFirstThenUpRows) {
  const Packed packed(support::caps_of("t1 k1 e3 h64 i24 int4 g32 zp bf16 silu bias"), GetParam());
  const CudaMatrixLayout& layout = packed.layer.layout.gate_up;
  const std::int64_t half = packed.caps.intermediate, rows = 2 * half;
  const auto source_row = [&](std::int64_t row) {
    const bool up = row >= half;
    if (GetParam() == GateUpOrder::interleaved) return 2 * (row - (up ? half : 0)) + (up ? 1 : 0);
    return GetParam() == GateUpOrder::gate_up ? row : (row + half) % rows;
  };
  const auto same = [&](std::int64_t offset, std::int64_t row_bytes, const ConstTensorView& tensor, std::int64_t row) {
    const std::int64_t from = row / rows * rows + source_row(row % rows);
    return std::memcmp(packed.at(offset + row * row_bytes), tensor.as<std::byte>() + from * row_bytes,
                       static_cast<std::size_t>(row_bytes)) == 0;
  };
  for (std::int64_t row = 0; row < packed.caps.experts * rows; ++row) {
    EXPECT_TRUE(same(layout.codes, layout.codes_row_bytes(), packed.stacked.gate_up_codes, row)) << row;
    EXPECT_TRUE(same(layout.scales, layout.scales_row_bytes(), packed.stacked.gate_up_scales, row)) << row;
    EXPECT_TRUE(same(layout.zeros, layout.groups, packed.stacked.gate_up_zeros, row)) << row;
    float bias = 0;
    std::memcpy(&bias, packed.at(layout.bias + 4 * row), 4);
    const std::int64_t from = row / rows * rows + source_row(row % rows);
    EXPECT_EQ(bias, bf16_to_float(packed.stacked.gate_up_bias.as<std::uint16_t>()[from])) << row;
  }
}

TEST(PackGlobals, GateAndUpKeepTheirOwnInEveryOrder) {
  for (const GateUpOrder order : {GateUpOrder::gate_up, GateUpOrder::up_gate, GateUpOrder::interleaved}) {
    const Packed packed(support::caps_of("t1 k1 e3 h64 i24 nvfp4 bf16 silu"), order);
    EXPECT_TRUE(holds(packed, packed.layer.layout.gate_up.global, packed.stacked.gate_up_global));
  }
}

/// A layer whose scales are in the dtypes given, by projection; `experts` from the second on may have others.
class PackScales : public testing::Test {
 protected:
  /// Gives every matrix of `part` of experts `first` and later scales of `dtype`: all bytes are `byte`.
  void set(MatrixSource ExpertMatrices::*part, DType dtype, std::int64_t first = 0, std::uint8_t byte = 0x3c) {
    buffers_.emplace_back(1 << 14, byte);
    const void* data = buffers_.back().data();
    changes_.push_back([=](std::int64_t index, ExpertMatrices& matrices) {
      if (index < first) return;
      MatrixSource& matrix = matrices.*part;
      matrix.scales = data;
      matrix.scale_dtype = dtype;
      matrix.scales_row_bytes = 64;
    });
  }
  PackedLayer pack() {
    const RandomExperts random(caps_, 7);
    WatchedSource source(random.stacked(), caps_);
    source.change = [this](std::int64_t index, ExpertMatrices& matrices) {
      for (const auto& change : changes_) change(index, matrices);
    };
    return pack_layer(caps_, source, packing_.target());
  }
  std::string refusal() {
    try {
      pack();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_input);
      return error.what();
    }
    return "nothing was thrown";
  }

  const Caps caps_ = support::caps_of("t1 k1 e3 h64 i32 int4 g32 bf16 silu");
  Packing packing_;

 private:
  std::vector<std::vector<std::uint8_t>> buffers_;
  std::vector<std::function<void(std::int64_t, ExpertMatrices&)>> changes_;
};

TEST_F(PackScales, EachProjectionHasItsOwnDtype) {
  set(&ExpertMatrices::gate, DType::f32);
  set(&ExpertMatrices::up, DType::f32);
  set(&ExpertMatrices::down, DType::f16);
  const PackedLayer layer = pack();
  EXPECT_EQ(layer.gate_up_scales, kernels::ScaleType::f32);
  EXPECT_EQ(layer.down_scales, kernels::ScaleType::f16);
  EXPECT_EQ(layer.layout.gate_up.scale_bytes, 4);
  EXPECT_EQ(layer.layout.down.scale_bytes, 2);
  EXPECT_EQ(static_cast<std::int64_t>(packing_.bytes.size()), cuda_weight_layout(caps_, {4, 2}).total_bytes);
}

TEST_F(PackScales, Fp32ScalesAreKeptAsTheyAre) {
  set(&ExpertMatrices::gate, DType::f32, 0, 0x41);
  set(&ExpertMatrices::up, DType::f32, 0, 0x42);
  const CudaMatrixLayout layout = pack().layout.gate_up;
  const std::int64_t part = caps_.intermediate * layout.scales_row_bytes();
  for (std::int64_t i = 0; i < caps_.experts * 2 * part; ++i)
    ASSERT_EQ(packing_.bytes[static_cast<std::size_t>(layout.scales + i)], std::byte(i / part % 2 == 0 ? 0x41 : 0x42))
        << i;
}

TEST_F(PackScales, GateAndUpInTwoDtypesAreRefused) {
  set(&ExpertMatrices::gate, DType::f32);
  EXPECT_EQ(refusal(),
            "prepare_weights: the gate scales of expert 0 are F32, the up scales of expert 0 are BF16; a GPU keeps one "
            "dtype per projection, so convert them to F32");
}

TEST_F(PackScales, ALaterExpertInAnotherDtypeIsRefusedByNameAndNumber) {
  const std::pair<MatrixSource ExpertMatrices::*, std::string> parts[] = {
      {&ExpertMatrices::gate, "gate"}, {&ExpertMatrices::up, "up"}, {&ExpertMatrices::down, "down"}};
  std::int64_t number = 0;
  for (const auto& [part, name] : parts) {
    SCOPED_TRACE(name);
    set(&ExpertMatrices::gate, DType::bf16);  // undoes the round before
    set(&ExpertMatrices::up, DType::bf16);
    set(part, DType::f16, 2);
    const std::string text = refusal();
    EXPECT_NE(text.find("the " + name + " scales of expert 2 are F16, the "), std::string::npos) << text;
    ++number;
  }
  EXPECT_EQ(number, 3);
}

TEST(PackBias, EveryDtypeBecomesFp32) {
  const Caps caps = support::caps_of("t1 k1 e2 h64 i32 mxfp4 bf16 silu down_bias");
  const RandomExperts random(caps, 7);
  const std::vector<float> single(64, 1.0009765625f);                      // 1 + 2^-10: exact in fp16, not in bf16
  const std::vector<std::uint16_t> half(64, float_to_f16(1.0009765625f));  // 0x3c01
  for (const bool is_half : {false, true}) {
    WatchedSource source(random.stacked(), caps);
    source.change = [&](std::int64_t, ExpertMatrices& matrices) {
      matrices.down.bias = is_half ? static_cast<const void*>(half.data()) : single.data();
      matrices.down.bias_dtype = is_half ? DType::f16 : DType::f32;
      matrices.down.bias_stride_bytes = is_half ? 2 : 4;
    };
    Packing packing;
    const PackedLayer layer = pack_layer(caps, source, packing.target());
    for (std::int64_t row = 0; row < 2 * 64; ++row) {
      float value = 0;
      std::memcpy(&value, packing.bytes.data() + layer.layout.down.bias + 4 * row, 4);
      ASSERT_EQ(value, 1.0009765625f) << row;
    }
  }
}

TEST(MatrixParams, FollowTheLayout) {
  const Caps caps = support::caps_of("t1 k1 e3 h64 i40 int4 g32 zp bf16 silu bias");
  const CudaMatrixLayout layout = cuda_weight_layout(caps, {4, 2}).gate_up;
  const auto* base = reinterpret_cast<const std::byte*>(0x10000);
  const kernels::MatrixParams params = matrix_params(layout, kernels::ScaleType::f32, base);
  EXPECT_EQ(static_cast<const void*>(params.codes), base + layout.codes);
  EXPECT_EQ(params.scales, base + layout.scales);
  EXPECT_EQ(static_cast<const void*>(params.zeros), base + layout.zeros);
  EXPECT_EQ(params.global, nullptr);
  EXPECT_EQ(static_cast<const void*>(params.bias), base + layout.bias);
  EXPECT_EQ(params.codes_row_bytes, 64 / 2);
  EXPECT_EQ(params.codes_expert_bytes, 80 * 64 / 2);
  EXPECT_EQ(params.scales_row_bytes, 2 * 4);
  EXPECT_EQ(params.scales_expert_bytes, 80 * 2 * 4);
  EXPECT_EQ(params.zeros_row_bytes, 2);
  EXPECT_EQ(params.zeros_expert_bytes, 80 * 2);
  EXPECT_EQ(params.bias_expert_floats, 80);
  EXPECT_EQ(params.reduction, 64);
  EXPECT_EQ(params.group_size, 32);
  EXPECT_EQ(params.scale_type, kernels::ScaleType::f32);
}

TEST(MatrixParams, AWholeRowIsOneGroup) {
  const Caps caps = support::caps_of("t1 k1 e3 h64 i40 int4 grow bf16 silu");
  const kernels::MatrixParams params =
      matrix_params(cuda_weight_layout(caps).down, kernels::ScaleType::bf16, reinterpret_cast<std::byte*>(0x10000));
  EXPECT_EQ(params.group_size, 40);
  EXPECT_EQ(params.scales_row_bytes, 2);
}

TEST(MatrixParams, Nvfp4HasAGlobalPerPart) {
  const Caps caps = support::caps_of("t1 k1 e3 h64 i40 nvfp4 bf16 silu");
  const CudaWeightLayout layout = cuda_weight_layout(caps);
  const auto* base = reinterpret_cast<const std::byte*>(0x10000);
  const auto global_of = [&](const CudaMatrixLayout& matrix) {
    return matrix_params(matrix, kernels::ScaleType::bf16, base);
  };
  EXPECT_EQ(static_cast<const void*>(global_of(layout.gate_up).global), base + layout.gate_up.global);
  EXPECT_EQ(global_of(layout.gate_up).global_expert_floats, 2);
  EXPECT_EQ(global_of(layout.down).global_expert_floats, 1);
  EXPECT_EQ(global_of(layout.down).zeros, nullptr);
  EXPECT_EQ(global_of(layout.down).bias, nullptr);
}

}  // namespace
}  // namespace fourfold::cuda
