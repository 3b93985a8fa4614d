// Bytes of a layer's experts by their format's definition.
#include <gtest/gtest.h>

#include "fourfold/error.h"
#include "fourfold/plan.h"

namespace fourfold {
namespace {

std::uint64_t bytes_of(std::string_view problem) { return layer_expert_bytes(parse_problem(problem).caps); }

TEST(ExpertBytes, Nvfp4HasHalfAByteACodeAndAByteAGroup) {
  // 3 matrices of 64 x 64: 2048 bytes of codes, 256 scales and a global scale each.
  EXPECT_EQ(bytes_of("t1 k1 e1 h64 i64 nvfp4"), 3u * (2048 + 256 + 4));
  EXPECT_EQ(bytes_of("t1 k1 e5 h64 i64 nvfp4"), 15u * (2048 + 256 + 4));
  EXPECT_EQ(bytes_of("t1 k1 e1 h64 i64 nvfp4 relu2"), 2u * (2048 + 256 + 4));
}

TEST(ExpertBytes, ShortGroupsCountWhole) {
  // Rows of 72 positions: 5 groups of 16, 3 groups of 32.
  EXPECT_EQ(bytes_of("t1 k1 e1 h72 i64 nvfp4 relu2"), 64u * 36 + 64 * 5 + 4 + 72 * 32 + 72 * 4 + 4);
  EXPECT_EQ(bytes_of("t1 k1 e1 h72 i64 mxfp4 relu2"), 64u * 36 + 64 * 3 + 72 * 32 + 72 * 2);
}

TEST(ExpertBytes, Int4HasScalesOf16BitsAndZeroPointsOf4) {
  EXPECT_EQ(bytes_of("t1 k1 e1 h64 i64 int4 g32 relu2"), 2u * (2048 + 128 * 2));
  EXPECT_EQ(bytes_of("t1 k1 e1 h64 i64 int4 g32 zp relu2"), 2u * (2048 + 128 * 2 + 64));
  EXPECT_EQ(bytes_of("t1 k1 e1 h64 i64 int4 grow relu2"), 2u * (2048 + 64 * 2));
}

TEST(ExpertBytes, BiasesAreOf16Bits) {
  EXPECT_EQ(bytes_of("t1 k1 e1 h64 i128 nvfp4 bias") - bytes_of("t1 k1 e1 h64 i128 nvfp4"), (256u + 64) * 2);
}

TEST(ExpertBytes, Exl3HasItsBitsAndTheRotations) {
  // 3 x 128 x 128 codes of 3 bits; three rotations of each side in fp16.
  EXPECT_EQ(bytes_of("t1 k1 e1 h128 i128 exl3"), 3u * 128 * 128 * 3 / 8 + 6 * 128 * 2);
  EXPECT_EQ(bytes_of("t1 k1 e1 h128 i128 exl3 b4"), 3u * 128 * 128 * 4 / 8 + 6 * 128 * 2);
  // GLM-5.2 at tensor parallel 4: what three bits save of a rank's layer.
  const std::uint64_t codes = 160ull * 3 * 6144 * 512;
  EXPECT_EQ(bytes_of("t1 k8 e160 h6144 i512 exl3 b3"), codes * 3 / 8 + 160ull * 3 * (6144 + 512) * 2);
}

void expect_refused(std::string_view problem, const std::string& says) {
  try {
    bytes_of(problem);
    ADD_FAILURE() << problem;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << problem;
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(ExpertBytes, SizesThatTheFormatDoesNotHaveAreRefused) {
  expect_refused("t1 k1 e1 h64 i128 exl3", "multiples");
  expect_refused("t1 k1 e1 h128 i128 exl3 b9", "2 .. 8 bits, not 9");
  expect_refused("t1 k1 e1 h128 i128 exl3 g32", "neither groups");
  expect_refused("t1 k1 e1 h128 i128 nvfp4 b3", "4 bits, not 3");
  expect_refused("t1 k1 e1 h129 i128 nvfp4", "hidden = 129");
}

TEST(ExpertBytes, Exl3IsPricedAndNotRun) {
  const Caps caps = parse_problem("t1 k1 e1 h128 i128 exl3").caps;
  EXPECT_GT(layer_expert_bytes(caps), 0u);
  for (const std::string& name : device_preset_names()) {
    const Support support = can_implement(caps, device_preset(name));
    EXPECT_FALSE(support.ok) << name;
    EXPECT_NE(support.reason.find("exl3"), std::string::npos) << support.reason;
  }
}

TEST(ExpertBytes, TheTextOfExl3ReadsBack) {
  for (const char* text : {"t1 k1 e1 h128 i128 exl3 bf16 silu", "t1 k1 e1 h128 i128 exl3 b4 bf16 silu"})
    EXPECT_EQ(problem_text(parse_problem(text)), text);
  EXPECT_EQ(parse_problem("t1 k1 e1 h128 i128 exl3").caps.format, FormatSpec::exl3(3));
}

}  // namespace
}  // namespace fourfold
