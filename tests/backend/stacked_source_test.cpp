// Stacked tensors as a source of experts: row orders, refusals, and the checks of prepare_weights.
#include "moe/stacked_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "fake_backend.h"

namespace fourfold {
namespace {

constexpr std::int64_t kExperts = 3, kHidden = 64, kIntermediate = 40;

/// Owned tensors of a problem; the first code byte, scale byte, zero and bias of a row spell expert and row.
struct Stacked {
  explicit Stacked(const std::string& options = "") : caps(parse_problem("t4 k2 e3 h64 i40 " + options).caps) {
    const bool nvfp4 = caps.format.format == WeightFormat::nvfp4;
    const DType scale_dtype = nvfp4                                       ? DType::f8_e4m3
                              : caps.format.format == WeightFormat::mxfp4 ? DType::u8
                                                                          : DType::bf16;
    const std::int64_t globals = caps.activation.gated() ? 2 : 1;
    fill(0, caps.gate_up_rows(), kHidden, scale_dtype, nvfp4 ? kExperts * globals : 0, caps.gate_up_bias);
    fill(1, kHidden, kIntermediate, scale_dtype, nvfp4 ? kExperts : 0, caps.down_bias);
    experts.gate_up_codes = {codes[0].data(), DType::u8, {kExperts, caps.gate_up_rows(), kHidden / 2}};
    experts.gate_up_scales = {scales[0].data(), scale_dtype, {kExperts, caps.gate_up_rows(), groups(kHidden)}};
    experts.down_codes = {codes[1].data(), DType::u8, {kExperts, kHidden, kIntermediate / 2}};
    experts.down_scales = {scales[1].data(), scale_dtype, {kExperts, kHidden, groups(kIntermediate)}};
    if (caps.format.zero_points) {
      experts.gate_up_zeros = {zeros[0].data(), DType::u8, {kExperts, caps.gate_up_rows(), groups(kHidden)}};
      experts.down_zeros = {zeros[1].data(), DType::u8, {kExperts, kHidden, groups(kIntermediate)}};
    }
    if (nvfp4) {
      experts.gate_up_global = {global[0].data(), DType::f32, {kExperts, globals}};
      experts.down_global = {global[1].data(), DType::f32, {kExperts}};
    }
    if (caps.gate_up_bias) experts.gate_up_bias = {bias[0].data(), DType::f32, {kExperts, caps.gate_up_rows()}};
    if (caps.down_bias) experts.down_bias = {bias[1].data(), DType::f32, {kExperts, kHidden}};
  }
  std::int64_t groups(std::int64_t k) const { return groups_per_row(caps.format, k); }
  void fill(int which, std::int64_t rows, std::int64_t k, DType scale_dtype, std::int64_t globals, bool has_bias) {
    const std::int64_t all = kExperts * rows, scale_bytes = groups(k) * dtype_bits(scale_dtype) / 8;
    codes[which].assign(all * (k / 2), 0);
    scales[which].assign(all * scale_bytes, 0);
    zeros[which].assign(caps.format.zero_points ? all * groups(k) : 0, 0);
    bias[which].assign(has_bias ? all : 0, 0);
    for (std::int64_t row = 0; row < all; ++row) {
      codes[which][row * (k / 2)] = static_cast<std::uint8_t>(row);
      scales[which][row * scale_bytes] = static_cast<std::uint8_t>(row % 100);
      if (caps.format.zero_points) zeros[which][row * groups(k)] = static_cast<std::uint8_t>(row % 16);
      if (has_bias) bias[which][row] = static_cast<float>(row);
    }
    global[which].clear();
    for (std::int64_t index = 0; index < globals; ++index) global[which].push_back(1.0f + static_cast<float>(index));
  }

  Caps caps;
  std::vector<std::uint8_t> codes[2], scales[2], zeros[2];
  std::vector<float> bias[2], global[2];
  StackedExperts experts;
};

std::uint8_t code_at(const MatrixSource& matrix, std::int64_t row) {
  return matrix.codes[row * matrix.codes_row_bytes];
}
std::uint8_t scale_at(const MatrixSource& matrix, std::int64_t row) {
  return static_cast<const std::uint8_t*>(matrix.scales)[row * matrix.scales_row_bytes];
}
float bias_at(const MatrixSource& matrix, std::int64_t row) {
  float value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(matrix.bias) + row * matrix.bias_stride_bytes, sizeof value);
  return value;
}

struct Order {
  GateUpOrder order;
  std::int64_t gate_first, gate_step, up_first, up_step;
};

TEST(StackedSource, EveryOrderFindsItsGateAndUpRows) {
  const Order orders[] = {{GateUpOrder::gate_up, 0, 1, kIntermediate, 1},
                          {GateUpOrder::up_gate, kIntermediate, 1, 0, 1},
                          {GateUpOrder::interleaved, 0, 2, 1, 2}};
  std::int64_t compared = 0;
  for (const Order& order : orders) {
    Stacked stacked("bias");
    stacked.experts.order = order.order;
    const auto source = stacked_source(stacked.experts, stacked.caps);
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      const ExpertMatrices matrices = source->expert(expert);
      for (std::int64_t row = 0; row < kIntermediate; ++row) {
        const std::int64_t base = expert * 2 * kIntermediate;
        const std::int64_t gate = base + order.gate_first + row * order.gate_step;
        const std::int64_t up = base + order.up_first + row * order.up_step;
        ASSERT_EQ(code_at(matrices.gate, row), static_cast<std::uint8_t>(gate));
        ASSERT_EQ(code_at(matrices.up, row), static_cast<std::uint8_t>(up));
        ASSERT_EQ(scale_at(matrices.gate, row), gate % 100);
        ASSERT_EQ(scale_at(matrices.up, row), up % 100);
        ASSERT_EQ(bias_at(matrices.gate, row), static_cast<float>(gate));
        ASSERT_EQ(bias_at(matrices.up, row), static_cast<float>(up));
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 3 * kExperts * kIntermediate);
}

TEST(StackedSource, DownRowsAreInOrder) {
  Stacked stacked("int4 g16 zp bias");
  const auto source = stacked_source(stacked.experts, stacked.caps);
  for (std::int64_t expert = 0; expert < kExperts; ++expert)
    for (std::int64_t row = 0; row < kHidden; ++row) {
      const MatrixSource down = source->expert(expert).down;
      ASSERT_EQ(code_at(down, row), static_cast<std::uint8_t>(expert * kHidden + row));
      ASSERT_EQ(down.zeros[row * down.zeros_row_bytes], (expert * kHidden + row) % 16);
      ASSERT_EQ(bias_at(down, row), static_cast<float>(expert * kHidden + row));
    }
}

TEST(StackedSource, GateAndUpKeepTheirOwnGlobals) {
  Stacked stacked;
  const auto source = stacked_source(stacked.experts, stacked.caps);
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    const ExpertMatrices matrices = source->expert(expert);
    EXPECT_EQ(matrices.gate.global_scale, 1.0f + 2.0f * static_cast<float>(expert));
    EXPECT_EQ(matrices.up.global_scale, 2.0f + 2.0f * static_cast<float>(expert));
    EXPECT_EQ(matrices.down.global_scale, 1.0f + static_cast<float>(expert));
  }
}

TEST(StackedSource, WithoutAGateTheFirstProjectionIsUp) {
  Stacked stacked("relu2");
  const ExpertMatrices matrices = stacked_source(stacked.experts, stacked.caps)->expert(1);
  EXPECT_EQ(matrices.gate.codes, nullptr);
  EXPECT_EQ(code_at(matrices.up, 5), kIntermediate + 5);
  EXPECT_EQ(matrices.up.global_scale, 2.0f);
}

TEST(StackedSource, BothSpellingsOfE8m0AreTaken) {
  Stacked stacked("mxfp4");
  stacked.experts.gate_up_scales.dtype = DType::f8_e8m0;
  EXPECT_EQ(stacked_source(stacked.experts, stacked.caps)->expert(0).up.scale_dtype, DType::f8_e8m0);
}

TEST(StackedSource, ExpertsOutsideAreRefused) {
  Stacked stacked;
  const auto source = stacked_source(stacked.experts, stacked.caps);
  EXPECT_EQ(error_of([&] { source->expert(-1); }).code(), ErrorCode::usage);
  EXPECT_EQ(error_of([&] { source->expert(kExperts); }).code(), ErrorCode::usage);
}

TEST(StackedSource, CapsThatBreakARuleAreUnsupported) {
  Stacked stacked;
  stacked.caps.hidden = 63;
  EXPECT_EQ(error_of([&] { stacked_source(stacked.experts, stacked.caps); }).code(), ErrorCode::unsupported);
}

struct Refusal {
  const char* options;
  std::function<void(StackedExperts&)> spoil;
  const char* part;
};

TEST(StackedSource, RefusalTable) {
  static float other[1] = {1};
  const Refusal table[] = {
      {"", [](auto& e) { e.gate_up_codes = {}; }, "gate_up_codes is missing; expected U8 [3, 80, 32]"},
      {"", [](auto& e) { e.gate_up_codes.dtype = DType::i8; }, "gate_up_codes is I8, expected U8"},
      {"", [](auto& e) { e.gate_up_codes.shape[0] = 2; }, "gate_up_codes has shape [2, 80, 32], expected [3, 80, 32]"},
      {"", [](auto& e) { e.gate_up_codes.shape[2] = 64; }, "gate_up_codes has shape [3, 80, 64]"},
      {"", [](auto& e) { e.gate_up_codes.rank = 2; }, "gate_up_codes has shape [3, 80], expected"},
      {"", [](auto& e) { e.gate_up_codes.rank = 77; }, "gate_up_codes has shape [], expected"},
      {"", [](auto& e) { e.gate_up_codes.data = nullptr; }, "gate_up_codes [3, 80, 32] has a null data pointer"},
      {"", [](auto& e) { e.gate_up_scales.dtype = DType::u8; }, "gate_up_scales is U8, expected F8_E4M3"},
      {"", [](auto& e) { e.gate_up_scales.shape[2] = 2; }, "gate_up_scales has shape [3, 80, 2], expected [3, 80, 4]"},
      {"", [](auto& e) { e.gate_up_global = {}; }, "gate_up_global is missing"},
      {"", [](auto& e) { e.gate_up_global.shape[1] = 1; }, "gate_up_global has shape [3, 1], expected [3, 2]"},
      {"relu2", [](auto& e) { e.gate_up_global.shape[1] = 2; }, "expected [3, 1]"},
      {"",
       [](auto& e) {
         e.gate_up_zeros = {other, DType::u8, {1}};
       },
       "gate_up_zeros is given, but the format has no"},
      {"",
       [](auto& e) {
         e.gate_up_bias = {other, DType::f32, {1}};
       },
       "gate_up_bias is given, but the caps promise no"},
      {"bias", [](auto& e) { e.gate_up_bias = {}; }, "gate_up_bias is missing; expected BF16 or F16 or F32 [3, 80]"},
      {"bias", [](auto& e) { e.gate_up_bias.dtype = DType::i32; }, "gate_up_bias is I32"},
      {"", [](auto& e) { e.down_codes.shape[1] = 72; }, "down_codes has shape [3, 72, 20], expected [3, 64, 20]"},
      {"", [](auto& e) { e.down_scales.shape[2] = 2; }, "down_scales has shape [3, 64, 2], expected [3, 64, 3]"},
      {"", [](auto& e) { e.down_global = {}; }, "down_global is missing; expected F32 [3]"},
      {"bias", [](auto& e) { e.down_bias.shape[1] = 63; }, "down_bias has shape [3, 63], expected [3, 64]"},
      {"",
       [](auto& e) {
         e.down_bias = {other, DType::f32, {1}};
       },
       "down_bias is given"},
      {"int4 zp", [](auto& e) { e.gate_up_zeros = {}; }, "gate_up_zeros is missing; expected U8 [3, 80, 2]"},
      {"int4 zp", [](auto& e) { e.down_zeros.dtype = DType::i32; }, "down_zeros is I32, expected U8"},
      {"int4", [](auto& e) { e.gate_up_scales.dtype = DType::u8; }, "expected BF16 or F16 or F32"},
      {"int4",
       [](auto& e) {
         e.down_global = {other, DType::f32, {3}};
       },
       "only nvfp4 has global scales"},
      {"mxfp4", [](auto& e) { e.gate_up_scales.dtype = DType::f8_e4m3; }, "expected U8 or F8_E8M0"},
      {"", [](auto& e) { e.order = static_cast<GateUpOrder>(7); }, "order = 7 is no row order"},
  };
  for (const Refusal& refusal : table) {
    Stacked stacked(refusal.options);
    ASSERT_NO_THROW(stacked_source(stacked.experts, stacked.caps)) << refusal.part;
    refusal.spoil(stacked.experts);
    const Error error = error_of([&] { stacked_source(stacked.experts, stacked.caps); });
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << refusal.part;
    EXPECT_NE(std::string(error.what()).find(refusal.part), std::string::npos) << refusal.part << ": " << error.what();
  }
}

ExpertWeights prepare(FakeCounts& counts, Stacked& stacked) {
  Backend backend(std::make_unique<FakeBackend>(counts));
  const auto source = stacked_source(stacked.experts, stacked.caps);
  return prepare_weights(plan(stacked.caps, backend.device()), backend, *source);
}

TEST(PrepareWeights, AsksForEveryExpertOnce) {
  FakeCounts counts;
  Stacked stacked;
  const ExpertWeights weights = prepare(counts, stacked);
  EXPECT_FALSE(weights.empty());
  EXPECT_EQ(counts.experts_asked, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(PrepareWeights, GlobalsThatAreNotFiniteAndPositiveAreRefusedByExpertAndMatrix) {
  for (float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    FakeCounts counts;
    Stacked stacked;
    stacked.global[0][2 * 1 + 1] = bad;
    const Error error = error_of([&] { prepare(counts, stacked); });
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << bad;
    EXPECT_NE(std::string(error.what()).find("expert 1 up"), std::string::npos) << error.what();
    EXPECT_EQ(counts.experts_asked, (std::vector<std::int64_t>{0}));
  }
}

TEST(PrepareWeights, ZeroPointsAbove15AreRefused) {
  FakeCounts counts;
  Stacked stacked("int4 zp");
  stacked.zeros[1][0] = 16;
  const Error error = error_of([&] { prepare(counts, stacked); });
  EXPECT_EQ(error.code(), ErrorCode::bad_input);
  EXPECT_NE(std::string(error.what()).find("expert 0 down"), std::string::npos) << error.what();
}

TEST(PrepareWeights, APlanOfAnotherDeviceIsRefused) {
  FakeCounts counts;
  Stacked stacked;
  Backend backend(std::make_unique<FakeBackend>(counts));
  Device device = backend.device();
  device.isa = CpuIsa::avx512;
  const auto source = stacked_source(stacked.experts, stacked.caps);
  EXPECT_EQ(error_of([&] { prepare_weights(plan(stacked.caps, device), backend, *source); }).code(), ErrorCode::usage);
  EXPECT_EQ(counts.packed, 0);
}

struct MatrixRefusal {
  const char* options;
  std::function<void(ExpertMatrices&)> spoil;
  const char* part;
};

// Sources of the caller's own may hand over anything.
TEST(PrepareWeights, MatricesOfAnySourceAreChecked) {
  static std::uint8_t byte = 0;
  const MatrixRefusal table[] = {
      {"", [](auto& m) { m.gate.codes = nullptr; }, "expert 2 gate: codes are missing"},
      {"", [](auto& m) { m.down.scales = nullptr; }, "expert 2 down: scales are missing"},
      {"", [](auto& m) { m.up.scale_dtype = DType::u8; }, "expert 2 up: scales are U8, which nvfp4 does not have"},
      {"", [](auto& m) { m.up.codes_row_bytes = 31; }, "rows of codes lie 31 bytes apart, a row has 32 bytes"},
      {"", [](auto& m) { m.up.scales_row_bytes = 0; }, "rows of scales lie 0 bytes apart, a row has 4 bytes"},
      {"", [](auto& m) { m.up.zeros = &byte; }, "zero points are given"},
      {"int4 zp", [](auto& m) { m.up.zeros = nullptr; }, "zero points are missing"},
      {"int4 zp", [](auto& m) { m.up.zeros_row_bytes = 1; }, "rows of zero points lie 1 bytes apart"},
      {"", [](auto& m) { m.gate.bias = &byte; }, "a bias is given, but the caps promise none"},
      {"bias", [](auto& m) { m.down.bias = nullptr; }, "a bias is missing, but the caps promise one"},
      {"bias", [](auto& m) { m.up.bias_dtype = DType::f64; }, "the bias is F64"},
      {"bias", [](auto& m) { m.up.bias_stride_bytes = 2; }, "rows of the bias lie 2 bytes apart"},
      {"mxfp4", [](auto& m) { m.up.global_scale = 2; }, "global scale is 2, but only nvfp4 has one"},
      {"relu2", [](auto& m) { m.gate = m.up; }, "expert 2 gate: given, but relu2 has no gate"},
  };
  for (const MatrixRefusal& refusal : table) {
    Stacked stacked(refusal.options);
    ExpertMatrices matrices = stacked_source(stacked.experts, stacked.caps)->expert(2);
    ASSERT_NO_THROW(check_expert(matrices, 2, stacked.caps)) << refusal.part;
    refusal.spoil(matrices);
    const Error error = error_of([&] { check_expert(matrices, 2, stacked.caps); });
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << refusal.part;
    EXPECT_NE(std::string(error.what()).find(refusal.part), std::string::npos) << refusal.part << ": " << error.what();
  }
}

}  // namespace
}  // namespace fourfold
