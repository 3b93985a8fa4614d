// Every case file on every instruction set; planted faults; the round trip of a live call; files that are no cases.
#include "model/case_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "moe/reference_moe.h"
#include "support/files.h"
#include "support/moe_layer.h"
#include "support/temporary_folder.h"

using namespace fourfold;
using support::TemporaryFolder;

namespace {

std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(FOURFOLD_SOURCE_DIR "/tests/data/cases"))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string case_path(const std::string& name) {
  return FOURFOLD_SOURCE_DIR "/tests/data/cases/" + name + ".safetensors";
}

void expect_not_a_case(const std::string& file) {
  try {
    run_case(file, support::native());
    FAIL() << file << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input) << error.what();
  }
}

using Changes = std::vector<std::pair<std::string, std::string>>;

/// A copy of a case file with words of its header replaced by others of the same length.
std::string changed_case(const TemporaryFolder& scratch, const std::string& name, const Changes& changes) {
  std::string bytes = support::read_bytes(case_path(name));
  for (const auto& [from, to] : changes) {
    EXPECT_EQ(from.size(), to.size());
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) bytes.replace(at, to.size(), to);
  }
  return scratch.write("changed.safetensors", bytes);
}

}  // namespace

TEST(CaseFile, EveryListedFileIsThere) {
  const auto list = nlohmann::json::parse(support::read_bytes(FOURFOLD_SOURCE_DIR "/tests/data/cases/list.json"));
  ASSERT_GE(list.size(), 40u);
  for (const auto& entry : list) EXPECT_TRUE(std::filesystem::exists(case_path(entry.at("name")))) << entry.at("name");
  EXPECT_EQ(case_files().size(), list.size());
}

TEST(CaseFile, EveryFilePassesOnEveryInstructionSet) {
  for (const auto& backend : support::backends())
    for (const std::string& file : case_files()) {
      const CaseResult result = run_case(file, *backend);
      EXPECT_TRUE(result.ok) << result.name << " on " << cpu_isa_name(backend->device().isa) << ": " << result.reason;
      EXPECT_LE(result.max_error_over_bound, 1.0) << result.name;
      EXPECT_FALSE(result.refused) << result.name;
      EXPECT_EQ(result.name, std::filesystem::path(file).stem().string());
    }
}

// The files' results were made by another program from the definition: the reference must agree with both planes.
TEST(CaseFile, TheReferenceReproducesEveryFile) {
  std::size_t compared = 0;
  for (const std::string& file : case_files()) {
    const MoeCase test = read_case(file);
    const ReferenceResult reference = reference_moe(test.caps, test.experts, test.inputs);
    ASSERT_EQ(reference.expected.size(), test.expected.size()) << test.name;
    EXPECT_EQ(reference.invalid_ids, test.invalid_ids) << test.name;
    for (std::size_t i = 0; i < test.expected.size(); ++i, ++compared) {
      if (std::isnan(test.expected[i])) {
        EXPECT_TRUE(std::isnan(reference.expected[i])) << test.name << " " << i;
        continue;
      }
      // The files were made with limit, alpha and beta in double, the caps hold them in fp32: a relative change of
      // 2^-24 in a against the 6 * 2^-9 (bf16) that the bound allows. Summation order is far below.
      ASSERT_NEAR(reference.expected[i], test.expected[i], 0x1p-15 * test.bound[i]) << test.name << " " << i;
      ASSERT_NEAR(reference.bound[i], test.bound[i], 0x1p-15 * test.bound[i]) << test.name << " " << i;
    }
  }
  EXPECT_GT(compared, 20000u);
}

TEST(CaseFile, EveryPlantedFaultIsSeen) {
  for (const char* name : {"plain_nvfp4", "plain_mxfp4", "plain_int4", "topk_1", "tokens_130", "map_half", "fp16"})
    for (Inject inject : {Inject::nan, Inject::zero, Inject::stale, Inject::swap}) {
      const CaseResult result = run_case(case_path(name), support::native(), inject);
      EXPECT_FALSE(result.ok) << name << " inject " << static_cast<int>(inject);
      // The comparison itself must have seen it: the reason names an element, not a fault that could not be planted.
      EXPECT_NE(result.reason.find("row "), std::string::npos) << name << ": " << result.reason;
    }
}

TEST(CaseFile, AFaultThatCannotBePlantedIsNotAPass) {
  const CaseResult result = run_case(case_path("tokens_0"), support::native(), Inject::nan);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.reason.find("no fault could be planted"), std::string::npos) << result.reason;
}

class DumpedCase : public testing::TestWithParam<const char*> {};

TEST_P(DumpedCase, PassesAgain) {
  const TemporaryFolder scratch;
  const Caps caps = support::caps_of(GetParam());
  const RandomExperts experts(caps, 5);
  const RandomCall call = random_call(caps, caps.max_tokens, 6, {.ids_are_64_bit = true, .plant_dead_ids = true});
  const std::string file = scratch.file("live.safetensors");
  dump_case(file, "live call", caps, experts.stacked(), call.tensors);
  EXPECT_EQ(scratch.names().size(), 1u) << "something was left beside the file";
  const MoeCase read = read_case(file);
  Caps expected_caps = caps;
  if (caps.activation.kind == ActivationKind::swiglu_oai) {  // the file spells the defaults out
    expected_caps.activation.limit = caps.activation.limit.value_or(7.0f);
    expected_caps.activation.alpha = caps.activation.alpha.value_or(1.702f);
    expected_caps.activation.beta = caps.activation.beta.value_or(1.0f);
  }
  EXPECT_EQ(read.caps, expected_caps);
  for (const auto& backend : support::backends()) {
    const CaseResult result = run_case(file, *backend);
    EXPECT_TRUE(result.ok) << result.reason;
    EXPECT_EQ(result.name, "live call");
    EXPECT_GT(result.max_error_over_bound, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, DumpedCase,
                         testing::Values("t17 k2 e6 h64 i40 nvfp4 bf16 silu limit=0.75",
                                         "t9 k3 e5 h72 i48 mxfp4 f16 swiglu_oai bias alpha=1.3",
                                         "t8 k2 e4 h128 i96 int4 g32 zp bf16 gelu_tanh eg7",
                                         "t5 k2 e4 h80 i24 int4 grow f32 situ on_input",
                                         "t6 k1 e3 h96 i56 nvfp4 f32 relu2 down_bias"));

TEST(CaseFile, DumpIntoAMissingFolderLeavesNothing) {
  const TemporaryFolder scratch;
  const Caps caps = support::caps_of("t2 k1 e2 h16 i16");
  const RandomExperts experts(caps, 1);
  const RandomCall call = random_call(caps, 2, 2);
  EXPECT_THROW(dump_case(scratch.file("no/such/folder.safetensors"), "x", caps, experts.stacked(), call.tensors),
               Error);
  EXPECT_EQ(scratch.names().size(), 0u);
}

TEST(CaseFile, OtherFilesAreRefused) {
  const TemporaryFolder scratch;
  expect_not_a_case(scratch.file("missing.safetensors"));
  expect_not_a_case(FOURFOLD_SOURCE_DIR "/tests/data/cases/list.json");
  expect_not_a_case(FOURFOLD_SOURCE_DIR "/tests/data/tiny/qwen3_moe/model.safetensors");
  expect_not_a_case(changed_case(scratch, "plain_nvfp4", {{"fourfold-moe-case", "fourfold-moe-cake"}}));
  expect_not_a_case(changed_case(scratch, "plain_nvfp4", {{"\"top_k\":\"2\"", "\"top_k\":\"x\""}}));
  expect_not_a_case(changed_case(scratch, "plain_nvfp4", {{"\"topk_ids\"", "\"topk_idx\""}}));
}

TEST(CaseFile, AWrongCountOfInvalidIdsFails) {
  const TemporaryFolder scratch;
  const std::string file = changed_case(scratch, "plain_nvfp4", {{"\"invalid_ids\":\"0\"", "\"invalid_ids\":\"1\""}});
  const CaseResult result = run_case(file, support::native());
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.reason.find("out of range"), std::string::npos) << result.reason;
}

TEST(CaseFile, WhatContradictsItselfIsRefused) {
  const TemporaryFolder scratch;
  for (const auto& [from, to] :
       {std::pair{"\"top_k\":\"2\"", "\"top_k\":\"3\""}, std::pair{"\"hidden\":\"64\"", "\"hidden\":\"65\""},
        std::pair{"\"experts\":\"8\"", "\"experts\":\"9\""},
        std::pair{"\"group_size\":\"16\"", "\"group_size\":\"17\""},
        std::pair{"\"weight_format\":\"nvfp4\"", "\"weight_format\":\"mxfp4\""}}) {
    const CaseResult result = run_case(changed_case(scratch, "plain_nvfp4", {{from, to}}), support::native());
    EXPECT_TRUE(result.refused) << to;
    EXPECT_FALSE(result.ok) << to;
    EXPECT_FALSE(result.reason.empty()) << to;
  }
}

TEST(CaseFile, ARefusalCanBeWhatTheFileExpects) {
  const TemporaryFolder scratch;
  const std::string file = changed_case(scratch, "plain_nvfp4", {{"\"expect\":\"output\"", "\"expect\":\"refuse\""}});
  EXPECT_FALSE(run_case(file, support::native()).ok) << "a call that runs is no refusal";
  const Changes bad_limit = {{"\"expect\":\"output\"", "\"expect\":\"refuse\""},
                             {"\"limit\":\"0.75\"", "\"limit\":\"-0.7\""}};
  const CaseResult result = run_case(changed_case(scratch, "silu_limit", bad_limit), support::native());
  EXPECT_TRUE(result.ok) << result.reason;
  EXPECT_TRUE(result.refused);
  EXPECT_FALSE(result.reason.empty());
}
