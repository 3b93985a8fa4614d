// The three weight formats evaluated in fp32, position by position: the readable definition, not the quick one.
#include "formats/dequantize.h"

#include <cstring>

#include "core/check.h"
#include "core/float16.h"
#include "formats/format.h"
#include "formats/fp4.h"

namespace fourfold {
namespace {

template <class T>
T load(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

void dequantize_row(const MatrixSource& source, std::int64_t row, std::int64_t k, const FormatSpec& spec, float* out) {
  const std::uint8_t* codes = source.codes + row * source.codes_row_bytes;
  const unsigned char* scales = static_cast<const unsigned char*>(source.scales) + row * source.scales_row_bytes;
  const std::uint8_t* zeros = spec.zero_points ? source.zeros + row * source.zeros_row_bytes : nullptr;
  const std::int64_t group = group_length(spec, k);
  for (std::int64_t begin = 0, index = 0; begin < k; begin += group, ++index) {
    const float scale = scale_value(spec, source.scale_dtype, scales, index);
    const int zero = zeros != nullptr ? zeros[index] : 8;
    const std::int64_t end = std::min(begin + group, k);
    for (std::int64_t position = begin; position < end; ++position) {
      const unsigned byte = codes[position / 2];
      const std::uint8_t code = static_cast<std::uint8_t>(position % 2 == 0 ? byte & 15u : byte >> 4);
      if (spec.format == WeightFormat::int4) {
        out[position] = static_cast<float>(static_cast<int>(code) - zero) * scale;
      } else {
        const float value = e2m1_value(code) * scale;
        out[position] = spec.format == WeightFormat::nvfp4 ? value * source.global_scale : value;
      }
    }
  }
}

}  // namespace

float scale_value(const FormatSpec& spec, DType scale_dtype, const void* scales, std::int64_t index) {
  switch (spec.format) {
    case WeightFormat::nvfp4:
      if (scale_dtype == DType::f8_e4m3) return e4m3_value(load<std::uint8_t>(scales, index));
      break;
    case WeightFormat::mxfp4:
      if (scale_dtype == DType::f8_e8m0 || scale_dtype == DType::u8)
        return e8m0_value(load<std::uint8_t>(scales, index));
      break;
    case WeightFormat::int4:
      if (scale_dtype == DType::bf16) return bf16_to_float(load<std::uint16_t>(scales, index));
      if (scale_dtype == DType::f16) return f16_to_float(load<std::uint16_t>(scales, index));
      if (scale_dtype == DType::f32) return load<float>(scales, index);
      break;
    case WeightFormat::exl3:
      break;
  }
  fail(ErrorCode::unsupported, "{} scales of dtype {} are not supported; allowed: {}", weight_format_name(spec.format),
       dtype_name(scale_dtype),
       spec.format == WeightFormat::nvfp4   ? "F8_E4M3"
       : spec.format == WeightFormat::mxfp4 ? "U8, F8_E8M0"
                                            : "BF16, F16, F32");
}

void dequantize(const MatrixSource& source, std::int64_t rows, std::int64_t k, const FormatSpec& spec, float* out) {
  check_format(spec);
  check(rows >= 0 && k >= 0 && k % 2 == 0, ErrorCode::unsupported,
        "a matrix of {} rows x {} positions cannot be dequantised: k must be even", rows, k);
  checked_mul(rows, k, "dequantised matrix");
  check(!spec.zero_points || source.zeros != nullptr || rows == 0 || k == 0, ErrorCode::bad_input,
        "int4 with zero points: the zero points are missing");
  if (rows == 0 || k == 0) return;
  scale_value(spec, source.scale_dtype, source.scales, 0);  // refuses a wrong dtype here, outside the threads
#pragma omp parallel for schedule(static) if (rows * k > 65536)
  for (std::int64_t row = 0; row < rows; ++row) dequantize_row(source, row, k, spec, out + row * k);
}

}  // namespace fourfold
