// What prepare_weights refuses in scales and zero points, and what it honours (bug-log BL-26).
#include "formats/validation.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "fourfold/error.h"

namespace fourfold {
namespace {

std::string refusal(const MatrixSource& source, std::int64_t rows, std::int64_t k, const FormatSpec& spec) {
  try {
    check_scales(source, rows, k, spec, "expert 3 down");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << error.what();
    EXPECT_NE(std::string(error.what()).find("expert 3 down"), std::string::npos) << error.what();
    return error.what();
  }
  return {};
}

TEST(Validation, GlobalScalesMustBeFiniteAndPositive) {
  const std::vector<std::uint8_t> bytes(64, 0x38);
  MatrixSource source;
  source.codes = bytes.data();
  source.scales = bytes.data();
  source.scales_row_bytes = 2;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0f, -0.0f, -1.0f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    source.global_scale = bad;
    EXPECT_NE(refusal(source, 2, 32, FormatSpec::nvfp4()).find("global scale"), std::string::npos) << bad;
  }
  for (const float good : {1.0f, 1e-40f, std::numeric_limits<float>::max()}) {
    source.global_scale = good;
    EXPECT_EQ(refusal(source, 2, 32, FormatSpec::nvfp4()), "") << good;
  }
}

TEST(Validation, ZeroPointsAboveFifteenAreRefusedByRowAndGroup) {
  const std::vector<std::uint16_t> scales(4, 0x3f80);
  for (int bad = 0; bad < 256; ++bad) {
    const std::vector<std::uint8_t> zeros{0, 15, 8, static_cast<std::uint8_t>(bad)};
    MatrixSource source;
    source.scales = scales.data();
    source.scales_row_bytes = 4;
    source.scale_dtype = DType::bf16;
    source.zeros = zeros.data();
    source.zeros_row_bytes = 2;
    const std::string text = refusal(source, 2, 32, FormatSpec::int4(16, true));
    EXPECT_EQ(text.empty(), bad <= 15) << bad;
    if (bad > 15) {
      EXPECT_NE(text.find("row 1, group 1 is " + std::to_string(bad)), std::string::npos) << text;
    }
  }
}

TEST(Validation, MissingZeroPointsAndScalesAreRefused) {
  const std::vector<std::uint16_t> scales(4, 0x3f80);
  MatrixSource source;
  source.scale_dtype = DType::bf16;
  EXPECT_NE(refusal(source, 2, 32, FormatSpec::int4(16)).find("scales are missing"), std::string::npos);
  source.scales = scales.data();
  EXPECT_NE(refusal(source, 2, 32, FormatSpec::int4(16, true)).find("zero points"), std::string::npos);
}

TEST(Validation, BlockScalesAreHonouredWhateverTheyAre) {
  std::vector<std::uint8_t> bytes(256);
  for (unsigned i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
  MatrixSource source;
  source.scales = bytes.data();
  source.scales_row_bytes = 1;
  EXPECT_EQ(refusal(source, 256, 16, FormatSpec::nvfp4()), "");
  source.scale_dtype = DType::u8;
  EXPECT_EQ(refusal(source, 256, 32, FormatSpec::mxfp4()), "");
  const std::vector<std::uint16_t> odd{0x7fc0, 0x7f80, 0xff80, 0xbf80, 0x0000};  // NaN, inf, -inf, -1, 0
  source.scales = odd.data();
  source.scales_row_bytes = 2;
  source.scale_dtype = DType::bf16;
  EXPECT_EQ(refusal(source, 5, 16, FormatSpec::int4(16)), "");
}

TEST(Validation, ScaleDTypesOfOtherFormatsAreUnsupported) {
  const std::vector<std::uint8_t> bytes(64);
  MatrixSource source;
  source.scales = bytes.data();
  source.scale_dtype = DType::u8;
  try {
    check_scales(source, 1, 16, FormatSpec::int4(16), "expert 0 up");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace fourfold
