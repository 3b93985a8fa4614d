// A random 4-bit matrix for tests of packing and micro-kernels: source tensors, packed experts, exact values.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/isa.h"
#include "cpu/repack.h"

namespace fourfold::cpu::test {

/// Formats to test: every codec, group sizes with short tails, every kind of int4 scale.
struct FormatCase {
  std::string name;
  FormatSpec spec;
  DType scale_dtype;
};
inline std::vector<FormatCase> format_cases() {
  std::vector<FormatCase> cases{{"nvfp4", FormatSpec::nvfp4(), DType::f8_e4m3},
                                {"mxfp4", FormatSpec::mxfp4(), DType::f8_e8m0}};
  for (const bool zeros : {false, true})
    for (const std::int64_t group : {16, 32, 64, 96, 128, 256, 0})
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
        cases.push_back({"int4_g" + std::to_string(group) + (zeros ? "_zeros_" : "_") + std::string(dtype_name(dtype)),
                         FormatSpec::int4(group, zeros), dtype});
  return cases;
}

/// The source of one matrix [rows, k] and its value in double precision, straight from the definition in weights.h.
struct SourceMatrix {
  std::int64_t rows = 0, k = 0, groups = 0, group = 0;
  FormatSpec spec;
  DType scale_dtype = DType::bf16;
  std::vector<std::uint8_t> codes, zeros, scales;

  static std::int64_t scale_bytes(DType dtype) { return dtype_bits(dtype) / 8; }

  SourceMatrix(const FormatCase& format, std::int64_t rows_in, std::int64_t k_in, std::uint64_t seed)
      : rows(rows_in), k(k_in), spec(format.spec), scale_dtype(format.scale_dtype) {
    group = spec.group_size == 0 ? k : spec.group_size;
    groups = (k + group - 1) / group;
    std::mt19937_64 random(seed);
    codes.resize(static_cast<std::size_t>(rows * k / 2));
    for (auto& byte : codes) byte = static_cast<std::uint8_t>(random());
    const auto entries = static_cast<std::size_t>(rows * groups);
    for (std::size_t i = 0; spec.zero_points && i < entries; ++i) zeros.push_back(static_cast<std::uint8_t>(i % 16));
    scales.resize(entries * static_cast<std::size_t>(scale_bytes(scale_dtype)));
    for (std::size_t i = 0; i < entries; ++i) {
      if (spec.format == WeightFormat::nvfp4) {
        scales[i] = static_cast<std::uint8_t>(i % 127);  // every finite positive E4M3 byte, subnormals included
      } else if (spec.format == WeightFormat::mxfp4) {
        scales[i] = static_cast<std::uint8_t>(100 + random() % 60);
      } else {
        const float value = 0.01f + 0.001f * static_cast<float>(random() % 64);
        std::uint32_t bits;
        std::memcpy(&bits, &value, 4);
        if (scale_dtype == DType::f32) std::memcpy(&scales[i * 4], &bits, 4);
        const auto half = static_cast<std::uint16_t>(scale_dtype == DType::bf16 ? bits >> 16 : 0x2000 + random() % 512);
        if (scale_dtype != DType::f32) std::memcpy(&scales[i * 2], &half, 2);
      }
    }
  }

  int code(std::int64_t row, std::int64_t column) const {
    const std::uint8_t byte = codes[static_cast<std::size_t>(row * (k / 2) + column / 2)];
    return column % 2 == 0 ? byte & 15 : byte >> 4;
  }
  double scale(std::int64_t row, std::int64_t j) const {
    const auto entry = static_cast<std::size_t>(row * groups + j);
    if (spec.format == WeightFormat::nvfp4) {
      const int byte = scales[entry], exponent = byte >> 3 & 15, mantissa = byte & 7;
      return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    }
    if (spec.format == WeightFormat::mxfp4) return std::ldexp(1.0, scales[entry] - 127);
    if (scale_dtype == DType::f32) {
      float value;
      std::memcpy(&value, &scales[entry * 4], 4);
      return value;
    }
    std::uint16_t half;
    std::memcpy(&half, &scales[entry * 2], 2);
    if (scale_dtype == DType::f16) return std::ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);
    const std::uint32_t bits = std::uint32_t{half} << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  /// Value of a code before scaling.
  double code_value(std::int64_t row, std::int64_t column) const {
    static constexpr double kE2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int c = code(row, column);
    if (spec.format != WeightFormat::int4) return c & 8 ? -kE2m1[c & 7] : kE2m1[c];
    return c - (spec.zero_points ? zeros[static_cast<std::size_t>(row * groups + column / group)] : 8);
  }
  double value(std::int64_t row, std::int64_t column) const {
    return code_value(row, column) * scale(row, column / group);
  }

  MatrixSource source() const {
    MatrixSource out;
    out.codes = codes.data();
    out.codes_row_bytes = k / 2;
    out.scales = scales.data();
    out.scale_dtype = scale_dtype;
    out.scales_row_bytes = groups * scale_bytes(scale_dtype);
    out.zeros = zeros.empty() ? nullptr : zeros.data();
    out.zeros_row_bytes = groups;
    return out;
  }
};

/// One expert without a gate: up [intermediate, hidden], down [hidden, intermediate].
class OneExpert final : public ExpertSource {
 public:
  OneExpert(const SourceMatrix& up, const SourceMatrix& down) : up_(up), down_(down) {}
  ExpertMatrices expert(std::int64_t) override { return {{}, up_.source(), down_.source()}; }

 private:
  const SourceMatrix& up_;
  const SourceMatrix& down_;
};

inline Caps caps_of(const FormatSpec& spec, std::int64_t hidden, std::int64_t intermediate) {
  Caps caps;
  caps.hidden = hidden;
  caps.intermediate = intermediate;
  caps.format = spec;
  caps.activation.kind = ActivationKind::relu2;
  return caps;
}

/// A matrix [rows, k], packed as the up projection of an expert.
struct PackedUp {
  SourceMatrix up, down;
  std::unique_ptr<PackedCpuExperts> packed;
  PackedUp(const FormatCase& format, std::int64_t rows, std::int64_t k, std::uint64_t seed)
      : up(format, rows, k, seed), down(format, k, rows, seed + 1) {
    OneExpert source(up, down);
    packed = std::make_unique<PackedCpuExperts>(caps_of(format.spec, k, rows), source, 2);
  }
  const PackedExpert& expert() const { return packed->expert(0); }
};

}  // namespace fourfold::cpu::test
