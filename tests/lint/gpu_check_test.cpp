// tools/gpu_check and its test program, as far as a machine without a GPU can run them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gpu/catch_listener.h"
#include "gpu/flush_memory.h"
#include "gpu/gpu_report.h"
#include "gpu/planted_faults.h"
#include "support/temporary_folder.h"

namespace fourfold::lint {
namespace {

using gpu_test::CheckResult;
using gpu_test::Json;

const std::string kScript = FOURFOLD_SOURCE_DIR "/tools/gpu_check";
const std::string kProgram = FOURFOLD_BINARY_DIR "/bin/fourfold_gpu_tests";

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

/// Runs a command of the shell; no GPU is visible to it.
Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("CUDA_VISIBLE_DEVICES= " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Json part(const std::string& label, const std::string& commit, const CheckResult& check) {
  Json json = {{"kind", "gpu_part"},
               {"label", label},
               {"commit", commit},
               {"dirty", false},
               {"device", {{"name", "a"}}},
               {"complete", true},
               {"kernels", {{"compiled", 4}}}};
  json["checks"] = {{"Capture", gpu_test::check_json(check)}};
  json["in_capture"] = {{"captures", 5}, {"compiles", 0}, {"loads", 0}, {"allocations", 0}, {"synchronisations", 0}};
  return json;
}

TEST(GpuCheck, HelpNamesEveryModeAndBadArgumentsAreUsageErrors) {
  const Outcome help = run(kScript + " --help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* mode : {"--build", "--quick", "--part"}) EXPECT_TRUE(contains(help.text, mode)) << help.text;
  for (const char* bad : {"", " --part 9", " --part", " --nothing", " --quick --dir /nothing/there"})
    EXPECT_EQ(run(kScript + bad).exit_code, 2) << bad;
}

TEST(GpuCheck, TheTestProgramEndsWith7AndAReasonWithoutAGpu) {
  const Outcome outcome = run(kProgram);
  EXPECT_EQ(outcome.exit_code, 7) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "fourfold_gpu_tests: ")) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "use the CPU")) << outcome.text;
}

TEST(GpuCheck, TheTestProgramHasTheSuitesOfTheReport) {
  const Outcome list = run(kProgram + " --gtest_list_tests");
  EXPECT_EQ(list.exit_code, 0);
  for (const char* suite : {"Accuracy",        "Capture",  "Cases",    "Corpus",       "Determinism",
                            "EndOfMemory",     "Extremes", "Ids",      "LargeOffsets", "Matrix",
                            "MemoryFlat",      "Naive",    "Options",  "Pairwise",     "PairwiseReplay",
                            "PoisonWorkspace", "Replay",   "Residues", "Shapes",       "Tokens"})
    EXPECT_TRUE(contains(list.text, std::string(suite) + ".\n")) << suite;
}

TEST(GpuCheck, APlantedFaultWithoutANameOfOneIsAUsageError) {
  const Outcome outcome = run(kProgram + " --plant nothing");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.text;
  EXPECT_TRUE(contains(outcome.text, "tail_mask")) << outcome.text;
}

// Every fault there is must be asked for by the script, or nobody notices that it is never planted.
TEST(GpuCheck, TheScriptPlantsEveryFault) {
  std::ifstream file(kScript);
  const std::string script((std::istreambuf_iterator<char>(file)), {});
  for (const gpu_test::PlantedFault& fault : gpu_test::planted_faults())
    EXPECT_TRUE(contains(script, fault.name)) << fault.name;
}

TEST(GpuCheck, WhatProvesThatAFaultWasSeen) {
  EXPECT_TRUE(gpu_test::failure_sees_fault("written outside workspace"));
  EXPECT_TRUE(
      gpu_test::failure_sees_fault("C++ exception with description \"cuStreamSynchronize on cuda:0: "
                                   "CUDA_ERROR_ILLEGAL_ADDRESS (700)\" thrown in the test body."));
  EXPECT_FALSE(gpu_test::failure_sees_fault("C++ exception with description \"kernel x does not compile\" thrown"));
  gpu_test::CatchListener listener;
  EXPECT_EQ(listener.result(true, 1).failed, 1) << "nothing was seen";
  listener.OnTestPartResult({testing::TestPartResult::kNonFatalFailure, "f.cpp", 1, "C++ exception with description"});
  EXPECT_EQ(listener.result(true, 1).failed, 1);
  listener.OnTestPartResult({testing::TestPartResult::kNonFatalFailure, "f.cpp", 1, "row 3 column 4"});
  EXPECT_EQ(listener.result(true, 1).failed, 0);
  EXPECT_EQ(listener.result(false, 1).failed, 1) << "nothing was planted";
}

TEST(GpuCheck, FlushMemoryEndsWhereItsMappingEnds) {
  for (const std::uint64_t bytes : {1, 16, 4096, 2097152, 2097153})
    for (const std::uint64_t alignment : {4, 16, 256}) {
      const gpu_test::FlushLayout layout = gpu_test::flush_layout(bytes, 2097152, alignment);
      EXPECT_EQ(layout.mapped_bytes % 2097152, 0u);
      EXPECT_EQ(layout.offset_bytes % alignment, 0u);
      EXPECT_GE(layout.offset_bytes + bytes, layout.mapped_bytes - alignment + 1);
      EXPECT_LE(layout.offset_bytes + bytes, layout.mapped_bytes);
    }
}

TEST(GpuCheck, MergedPartsAddUp) {
  const Json report =
      gpu_test::merge_parts({part("cold", "abc", {3, 0, 1, {"one GPU"}, 1.5}), part("warm", "abc", {4, 0, 0, {}, 1.0})},
                            {{}, {{"racecheck", "not here"}}, {"verify"}, {{"memcheck", 0, ""}}});
  EXPECT_EQ(report["kind"], "gpu_check");
  EXPECT_EQ(report["commit"], "abc");
  EXPECT_EQ(report["dirty"], false);
  EXPECT_EQ(report["device"]["name"], "a");
  EXPECT_EQ(report["checks"].size(), 4u);
  EXPECT_EQ(report["checks"]["cold/Capture"]["reasons"][0], "one GPU");
  EXPECT_EQ(report["run"], 8);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["skipped"], 2);
  EXPECT_EQ(report["sanitizer_findings"], 0);
  EXPECT_EQ(report["captures"], 10);
  EXPECT_EQ(report["compiles_in_capture"], 0);
  EXPECT_EQ(report["allocations_in_capture"], 0);
  EXPECT_EQ(report["kernels"]["warm"]["compiled"], 4);
  EXPECT_TRUE(gpu_test::passed(report));
  EXPECT_TRUE(contains(gpu_test::summary(report), "passed: 8 run, 0 failed, 2 skipped")) << gpu_test::summary(report);
}

TEST(GpuCheck, EveryKindOfFailureFailsTheReport) {
  const Json good = part("cold", "abc", {3, 0, 0, {}, 1});
  ASSERT_TRUE(gpu_test::passed(gpu_test::merge_parts({good}, {})));
  EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({part("cold", "abc", {3, 1, 0, {"x"}, 1})}, {})));
  EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({good}, {{{"warm/end", "signal"}}, {}, {}, {}})));
  EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({good}, {{}, {}, {}, {{"memcheck", 2, ""}}})));
  EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({good, part("warm", "def", {3, 0, 0, {}, 1})}, {})));
  EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({}, {})));
  Json cut = good;
  cut["complete"] = false;
  EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({cut}, {})));
  for (const char* field : {"compiles", "loads", "allocations", "synchronisations"}) {
    Json forbidden = good;
    forbidden["in_capture"][field] = 1;
    EXPECT_FALSE(gpu_test::passed(gpu_test::merge_parts({forbidden}, {}))) << field;
  }
}

TEST(GpuCheck, WhatWasNotMeasuredIsNullAndNotZero) {
  Json uncaptured = part("cold", "abc", {3, 0, 0, {}, 1});
  uncaptured["in_capture"]["captures"] = 0;
  const Json report = gpu_test::merge_parts({uncaptured}, {{}, {}, {}, {{"memcheck", -1, "Device not supported"}}});
  EXPECT_TRUE(report["sanitizer_findings"].is_null());
  EXPECT_TRUE(report["sanitizers"]["memcheck"]["findings"].is_null());
  EXPECT_EQ(report["sanitizers"]["memcheck"]["reason"], "Device not supported");
  EXPECT_TRUE(report["allocations_in_capture"].is_null());
  EXPECT_TRUE(report["compiles_in_capture"].is_null());
}

TEST(GpuCheck, TheProgramMergesFiles) {
  const support::TemporaryFolder owner;
  const std::string folder = owner.string();
  std::ofstream(folder + "/a.json") << part("cold", "abc", {3, 0, 0, {}, 1});
  std::ofstream(folder + "/b.json") << part("warm", "abc", {2, 1, 0, {"why"}, 1});
  const Outcome good = run(kProgram + " --merge " + folder + "/out.json --sanitizer memcheck=0 --skipped 'x=no tool' " +
                           folder + "/a.json");
  EXPECT_EQ(good.exit_code, 0) << good.text;
  EXPECT_TRUE(contains(good.text, "passed: 3 run, 0 failed, 1 skipped; sanitizer findings: 0")) << good.text;
  const Outcome bad = run(kProgram + " --merge " + folder + "/out.json " + folder + "/a.json " + folder + "/b.json");
  EXPECT_EQ(bad.exit_code, 1) << bad.text;
  std::ifstream file(folder + "/out.json");
  const Json report = Json::parse(file);
  EXPECT_EQ(report["run"], 5);
  EXPECT_EQ(report["failed"], 1);
  EXPECT_EQ(report["checks"]["warm/Capture"]["reasons"][0], "why");
}

TEST(GpuCheck, TheCommitComesFromTheFolderOrTheBuild) {
  const support::TemporaryFolder owner;
  const std::string folder = owner.string();
  EXPECT_EQ(gpu_test::built_from(folder, "abc").commit, "abc");
  EXPECT_FALSE(gpu_test::built_from(folder, "abc").dirty);
  EXPECT_EQ(gpu_test::built_from(folder, "abc-dirty").commit, "abc");
  EXPECT_TRUE(gpu_test::built_from(folder, "abc-dirty").dirty);
  std::ofstream(folder + "/COMMIT") << "def\nclean\n";
  EXPECT_EQ(gpu_test::built_from(folder, "abc-dirty").commit, "def");
  EXPECT_FALSE(gpu_test::built_from(folder, "abc-dirty").dirty);
  std::ofstream(folder + "/COMMIT") << "def\ndirty\n";
  EXPECT_TRUE(gpu_test::built_from(folder, "abc").dirty);
}

}  // namespace
}  // namespace fourfold::lint
