// Which parameters a format takes, and how rows divide into groups.
#include "formats/format.h"

#include <gtest/gtest.h>

#include "fourfold/error.h"

namespace fourfold {
namespace {

TEST(Format, Names) {
  EXPECT_EQ(weight_format_name(WeightFormat::nvfp4), "nvfp4");
  EXPECT_EQ(weight_format_name(WeightFormat::mxfp4), "mxfp4");
  EXPECT_EQ(weight_format_name(WeightFormat::int4), "int4");
}

TEST(Format, EveryGroupOfTheTableIsAllowedAndNoOther) {
  int allowed = 0;
  for (std::int64_t group = -2; group <= 600; ++group)
    for (const bool zeros : {false, true}) allowed += format_refusal(FormatSpec::int4(group, zeros)).empty();
  EXPECT_EQ(allowed, 2 * 7);
  for (const std::int64_t group : {0, 16, 32, 64, 96, 128, 256}) EXPECT_NO_THROW(check_format(FormatSpec::int4(group)));
}

TEST(Format, RefusalsNameTheValueAndWhatIsAllowed) {
  EXPECT_NE(format_refusal(FormatSpec::int4(48)).find("16, 32, 64, 96, 128, 256 or the whole row"), std::string::npos);
  EXPECT_NE(format_refusal(FormatSpec::int4(48)).find("48"), std::string::npos);
  EXPECT_NE(format_refusal({WeightFormat::nvfp4, 32, false}).find("16"), std::string::npos);
  EXPECT_NE(format_refusal({WeightFormat::mxfp4, 16, false}).find("32"), std::string::npos);
  EXPECT_NE(format_refusal({WeightFormat::nvfp4, 16, true}).find("zero points"), std::string::npos);
  EXPECT_NE(format_refusal({WeightFormat::mxfp4, 32, true}).find("zero points"), std::string::npos);
  EXPECT_FALSE(format_refusal({static_cast<WeightFormat>(9), 16, false}).empty());
  EXPECT_NE(format_refusal({WeightFormat::nvfp4, 16, false, 3}).find("4 bits, not 3"), std::string::npos);
  EXPECT_NE(format_refusal(FormatSpec::exl3()).find("priced, not run"), std::string::npos);
  try {
    check_format(FormatSpec::int4(48));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
}

TEST(Format, TheLastGroupMayBeShort) {
  EXPECT_EQ(groups_per_row(FormatSpec::nvfp4(), 24), 2);
  EXPECT_EQ(groups_per_row(FormatSpec::mxfp4(), 64), 2);
  EXPECT_EQ(groups_per_row(FormatSpec::int4(128), 96), 1);
  EXPECT_EQ(groups_per_row(FormatSpec::int4(128), 136), 2);
  EXPECT_EQ(groups_per_row(FormatSpec::int4(0), 4096), 1);
  EXPECT_EQ(groups_per_row(FormatSpec::int4(0), 0), 0);
}

}  // namespace
}  // namespace fourfold
