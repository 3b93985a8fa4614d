// Every micro-kernel of every instruction set this machine has: against a double-precision sum, and its two shapes
// against each other, bit for bit.
#include "cpu/micro_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/float16.h"
#include "cpu/cpu_backend.h"
#include "packed_matrix.h"

namespace fourfold::cpu {
namespace {

using test::FormatCase;
using test::PackedUp;

/// A table of kernels and how it takes activations.
struct KernelCase {
  CpuIsa isa;
  bool bf16_dot;
};
std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  for (const CpuIsa isa : {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512})
    if (isa <= detected_isa()) cases.push_back({isa, false});
  if (detected_isa() == CpuIsa::avx512_bf16) cases.push_back({CpuIsa::avx512_bf16, true});
  return cases;
}

struct FreeAligned {
  void operator()(std::uint8_t* data) const { std::free(data); }
};
using Aligned = std::unique_ptr<std::uint8_t, FreeAligned>;
Aligned aligned(std::int64_t bytes) {
  const auto rounded = static_cast<std::size_t>((bytes + 63) / 64 * 64);
  auto* data = static_cast<std::uint8_t*>(std::aligned_alloc(64, rounded));
  std::memset(data, 0xff, rounded);  // NaN: what a kernel does not write itself must not reach its result
  return Aligned(data);
}

/// Tokens in compute type; values are bf16 numbers, so that both compute types hold them exactly.
struct Tokens {
  std::int64_t padded;
  std::vector<float> values;  // [tokens][padded]
  std::vector<std::uint8_t> rows;
  std::vector<const std::uint8_t*> pointers;

  Tokens(int tokens, std::int64_t k, bool bf16, std::uint64_t seed) : padded((k + 15) / 16 * 16) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const std::int64_t bytes = bf16 ? 2 : 4;
    rows.resize(static_cast<std::size_t>(tokens * padded * bytes));
    for (int t = 0; t < tokens; ++t) {
      for (std::int64_t c = 0; c < padded; ++c) {
        const std::uint16_t bits = c < k ? float_to_bf16(normal(random)) : std::uint16_t{0};
        const float value = bf16_to_float(bits);
        values.push_back(value);
        std::uint8_t* at = rows.data() + (t * padded + c) * bytes;
        bf16 ? std::memcpy(at, &bits, 2) : std::memcpy(at, &value, 4);
      }
      pointers.push_back(rows.data() + t * padded * bytes);
    }
  }
};

std::vector<float> multiply(const MicroKernels& kernels, bool blocked, bool bf16, const PackedExpert& expert,
                            const Tokens& x, int first, int tokens) {
  const Aligned sums = aligned(kSumsBytes), carried = aligned(kCarriedBytes), scales = aligned(kUnpackedScaleBytes),
                codes = aligned(unpacked_code_bytes(bf16));
  std::vector<float> out;  // [panel][tokens][16]
  const CpuMatrixLayout& layout = expert.gate_up.layout;
  for (std::int64_t panel = 0; panel < layout.panels; panel += kCallPanels) {
    DotCall call{};
    call.panel_count = static_cast<int>(std::min<std::int64_t>(kCallPanels, layout.panels - panel));
    call.tile = expert.gate_up.tile(panel / kCallPanels);
    call.steps = layout.steps;
    call.group_steps = layout.group_steps;
    call.rows = x.pointers.data() + first;
    call.tokens = tokens;
    call.sums = reinterpret_cast<float*>(sums.get());
    call.carried = reinterpret_cast<float*>(carried.get());
    call.unpacked_scales = reinterpret_cast<float*>(scales.get());
    call.unpacked_codes = codes.get();
    (blocked ? kernels.blocked : kernels.direct)[static_cast<int>(expert.format)](call);
    for (int p = 0; p < call.panel_count; ++p)
      for (int t = 0; t < tokens; ++t)
        for (int n = 0; n < 16; ++n) out.push_back(call.sums[t * kCallColumns + p * 16 + n]);
  }
  return out;
}

class MicroKernel : public testing::TestWithParam<KernelCase> {
 protected:
  const MicroKernels& kernels = micro_kernels(GetParam().isa, GetParam().bf16_dot);
  bool bf16 = GetParam().bf16_dot;
};

TEST_P(MicroKernel, MatchesADoublePrecisionSum) {
  std::int64_t compared = 0;
  for (const FormatCase& format : test::format_cases()) {
    SCOPED_TRACE(format.name);
    const PackedUp packed(format, 88, 552, 3);  // 5.5 panels, 34.5 steps: tails of panels, chunks and groups
    const Tokens x(7, packed.up.k, bf16, 5);
    const std::vector<float> out = multiply(kernels, true, bf16, packed.expert(), x, 0, 7);
    for (std::int64_t row = 0; row < packed.up.rows; ++row)
      for (int t = 0; t < 7; ++t, ++compared) {
        double sum = 0, magnitude = 0;
        for (std::int64_t c = 0; c < packed.up.k; ++c) {
          const double term = packed.up.value(row, c) * x.values[static_cast<std::size_t>(t * x.padded + c)];
          sum += term;
          magnitude += std::fabs(term);
        }
        // Every term passes at most k + groups roundings of relative size 2^-24 (2 per operation where a multiply and
        // an add round separately).
        const double bound = 2.0 * static_cast<double>(packed.up.k + packed.up.groups + 2) * 0x1p-24 * magnitude;
        const float got = out[static_cast<std::size_t>((row / 16 * 7 + t) * 16 + row % 16)];
        ASSERT_LE(std::fabs(got - sum), bound) << "row " << row << " token " << t;
      }
  }
  EXPECT_EQ(compared, 44 * 88 * 7);
}

TEST_P(MicroKernel, BothShapesAndEveryTokenCountGiveTheSameBits) {
  std::int64_t compared = 0;
  for (const FormatCase& format : test::format_cases()) {
    SCOPED_TRACE(format.name);
    const PackedUp packed(format, 56, 552, 11);
    const int most = 19;
    const Tokens x(most, packed.up.k, bf16, 13);
    const std::int64_t panels = packed.expert().gate_up.layout.panels;
    const std::vector<float> all = multiply(kernels, true, bf16, packed.expert(), x, 0, most);
    for (const bool blocked : {false, true})
      for (const int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
        const int first = most - tokens;
        const std::vector<float> part = multiply(kernels, blocked, bf16, packed.expert(), x, first, tokens);
        for (std::int64_t panel = 0; panel < panels; ++panel)
          for (int t = 0; t < tokens; ++t, ++compared)
            ASSERT_EQ(std::memcmp(&part[static_cast<std::size_t>((panel * tokens + t) * 16)],
                                  &all[static_cast<std::size_t>((panel * most + first + t) * 16)], 64),
                      0)
                << (blocked ? "blocked " : "direct ") << tokens << " tokens, panel " << panel << ", token " << t;
      }
  }
  EXPECT_EQ(compared, 44 * 2 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 13) * 4);
}

/// Scale bytes with one code of value 1 and x = 1: the sum is the scale itself.
TEST_P(MicroKernel, EveryScaleByteIsExact) {
  for (const bool e8m0 : {false, true}) {
    SCOPED_TRACE(e8m0 ? "e8m0" : "e4m3");
    alignas(64) std::uint8_t codes[kStepBytes] = {}, scales[16];
    for (int lane = 0; lane < 16; ++lane) codes[lane * 4] = 2;  // position 0 has the value 1
    std::vector<std::uint8_t> row(64, 0);
    const float one = 1.0f;
    const std::uint16_t one_bf16 = float_to_bf16(one);
    bf16 ? std::memcpy(row.data(), &one_bf16, 2) : std::memcpy(row.data(), &one, 4);
    const std::uint8_t* rows[] = {row.data()};
    const Aligned sums = aligned(kSumsBytes), scale_space = aligned(kUnpackedScaleBytes),
                  carried = aligned(kCarriedBytes), unpacked = aligned(unpacked_code_bytes(bf16));
    for (int byte = 0; byte < 256; byte += 16) {
      for (int lane = 0; lane < 16; ++lane) scales[lane] = static_cast<std::uint8_t>(byte + lane);
      for (const bool blocked : {false, true}) {
        DotCall call{};
        call.tile = {codes, scales, nullptr, kTileStepBytes, 16};
        call.panel_count = 1;
        call.steps = call.group_steps = 1;
        call.rows = rows;
        call.tokens = 1;
        call.sums = reinterpret_cast<float*>(sums.get());
        call.carried = reinterpret_cast<float*>(carried.get());
        call.unpacked_scales = reinterpret_cast<float*>(scale_space.get());
        call.unpacked_codes = unpacked.get();
        (blocked ? kernels.blocked : kernels.direct)[e8m0 ? 1 : 0](call);
        for (int lane = 0; lane < 16; ++lane) {
          const int b = byte + lane, exponent = b >> 3 & 15, mantissa = b & 7;
          const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
          const double expected = e8m0 ? std::ldexp(1.0, b - 127) : b & 128 ? -magnitude : magnitude;
          const bool nan = e8m0 ? b == 255 : (b & 127) == 127;
          if (nan)
            EXPECT_TRUE(std::isnan(call.sums[lane])) << b;
          else
            EXPECT_EQ(static_cast<double>(call.sums[lane]), expected) << b;
        }
      }
    }
  }
}

TEST_P(MicroKernel, SpecialTokensStayInTheirRows) {
  const PackedUp packed({"nvfp4", FormatSpec::nvfp4(), DType::f8_e4m3}, 16, 64, 3);
  const Tokens clean(6, 64, bf16, 5);
  Tokens dirty(6, 64, bf16, 5);
  const std::uint16_t nan_bf16 = 0x7fc0;
  const float nan = std::nanf("");
  std::uint8_t* at = dirty.rows.data() + 2 * 64 * (bf16 ? 2 : 4);
  bf16 ? std::memcpy(at, &nan_bf16, 2) : std::memcpy(at, &nan, 4);
  for (const bool blocked : {false, true}) {
    const auto a = multiply(kernels, blocked, bf16, packed.expert(), clean, 0, 6);
    const auto b = multiply(kernels, blocked, bf16, packed.expert(), dirty, 0, 6);
    for (std::size_t t = 0; t < 6; ++t)
      for (std::size_t n = 0; n < 16; ++n) {
        if (t == 2)
          EXPECT_TRUE(std::isnan(b[t * 16 + n]));
        else
          EXPECT_EQ(a[t * 16 + n], b[t * 16 + n]);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Machine, MicroKernel, testing::ValuesIn(kernel_cases()),
                         [](const auto& test) { return std::string(cpu_isa_name(test.param.isa)); });

TEST(MicroKernelList, SaysWhichInstructionSetsRan) {
  std::string ran;
  for (const KernelCase& test : kernel_cases()) ran += " " + std::string(cpu_isa_name(test.isa));
  std::printf("micro-kernels tested here:%s\n", ran.c_str());
  EXPECT_GE(kernel_cases().size(), 1u);
}

}  // namespace
}  // namespace fourfold::cpu
