// tools/gpu_check and its test program, as far as a machine without a GPU can run them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gpu/catch_listener.h"
#include "gpu/flush_memory.h"
#include "gpu/gpu_report.h"
#include "gpu/planted_faults.h"
#include "support/files.h"
#include "support/shell.h"
#include "support/temporary_folder.h"

namespace fourfold::lint {
namespace {

using gpu_test::CheckResult;
using gpu_test::Json;
using gpu_test::StepResults;

const std::string kScript = FOURFOLD_SOURCE_DIR "/tools/gpu_check";
const std::string kProgram = FOURFOLD_BINARY_DIR "/bin/fourfold_gpu_tests";

using Outcome = support::ShellOutcome;

/// Runs a command of the shell; no GPU is visible to it.
Outcome run(const std::string& command) { return support::run_shell("CUDA_VISIBLE_DEVICES= " + command); }

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
  for (const char* bad : {"", " --part 9", " --part", " --nothing", " --quick --dir /nothing/there",
                          " --quick --part 1", " --build --quick", " --part 1 --part 2", " --quick --out"})
    EXPECT_EQ(run(kScript + bad).exit_code, 2) << bad;
}

// It replaces the folder: what it did not build itself is somebody's work.
TEST(GpuCheck, BuildRemovesNoFolderThatItDidNotBuild) {
  const support::TemporaryFolder owner;
  const std::string mine = owner.write("mine", "work");
  for (const std::string& folder : {owner.string(), mine}) {
    const Outcome outcome = run(kScript + " --build " + folder);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.text;
    EXPECT_TRUE(contains(outcome.text, "--build " + folder)) << outcome.text;
  }
  const Outcome relative = run("true; cd " + owner.string() + " && " + kScript + " --build ./mine");
  EXPECT_EQ(relative.exit_code, 2) << relative.text;
  EXPECT_EQ(support::read_bytes(mine), "work");
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
  const std::string script = support::read_bytes(kScript);
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

StepResults mode(const std::string& name) {
  StepResults steps;
  steps.mode = name;
  return steps;
}

Json skipping(const std::string& suite, const std::string& reason, const std::string& depth = "full") {
  Json json = part("warm", "abc", {3, 0, 0, {}, 1});
  json["depth"] = depth;
  json["checks"][suite] = gpu_test::check_json({2, 0, 1, {reason}, 1});
  return json;
}

TEST(GpuCheck, InAPartASkipIsAFailure) {
  const Json memory = skipping("LargeOffsets", "RoutedRowsOfTheIntermediate: needs 12 GiB of free device memory");
  const Json quick = gpu_test::merge_parts({memory}, mode("quick"));
  EXPECT_TRUE(gpu_test::passed(quick));
  EXPECT_EQ(quick["skipped"], 1);
  EXPECT_EQ(quick["mode"], "quick");
  for (const char* name : {"part1", "part2", "part3"}) {
    const Json report = gpu_test::merge_parts({memory}, mode(name));
    EXPECT_FALSE(gpu_test::passed(report)) << name;
    EXPECT_EQ(report["mode"], name);
    EXPECT_EQ(report["skipped"], 0);
    EXPECT_EQ(report["failed"], 1);
    EXPECT_EQ(report["run"], 6) << "three, two, and what did not run";
    const Json& check = report["checks"]["warm/LargeOffsets"];
    EXPECT_EQ(check["failed"], 1);
    EXPECT_EQ(check["reasons"].size(), 2u) << "the test's own reason stays";
    EXPECT_TRUE(contains(check["reasons"][1], "1 skipped")) << check;
  }
}

TEST(GpuCheck, EverySkipOfTheListIsAllowedAndOnlyWhereItIs) {
  ASSERT_LE(gpu_test::allowed_skips().size(), 4u) << "a list that grows hides what was to be proved";
  for (const gpu_test::AllowedSkip& skip : gpu_test::allowed_skips()) {
    const std::string name = std::string(skip.suite) + "." + skip.test;
    EXPECT_GT(std::string(skip.explanation).size(), 10u) << name;
    const std::string reason = std::string(skip.test) + ": " + skip.reason + " and more";
    const auto passes = [](const Json& json) { return gpu_test::passed(gpu_test::merge_parts({json}, mode("part2"))); };
    EXPECT_TRUE(passes(skipping(skip.suite, reason, "quick"))) << name;
    EXPECT_EQ(passes(skipping(skip.suite, reason, "full")), !skip.quick_depth) << name;
    EXPECT_FALSE(passes(skipping(skip.suite, std::string(skip.test) + ": the time is over", "quick"))) << name;
    EXPECT_FALSE(passes(skipping(skip.suite, std::string("Another: ") + skip.reason, "quick"))) << name;
    EXPECT_FALSE(passes(skipping("Another", reason, "quick"))) << name;
    Json silent = skipping(skip.suite, reason, "quick");
    silent["checks"][skip.suite]["skipped"] = 2;
    EXPECT_FALSE(passes(silent)) << name << ": one skip gives no reason";
  }
}

// The list names tests that there are, with the words that they use: a renamed test must not stay on it.
TEST(GpuCheck, TheListNamesTestsOfTheProgramAndTheirReasons) {
  const Outcome list = run(kProgram + " --gtest_list_tests");
  std::string sources;
  for (const char* file : {"capture_test.cpp", "extremes_test.cpp", "residue_test.cpp"})
    sources += support::read_bytes(std::string(FOURFOLD_SOURCE_DIR "/tests/gpu/") + file);
  const std::string document = support::read_bytes(FOURFOLD_SOURCE_DIR "/docs/gpu_check.md");
  for (const gpu_test::AllowedSkip& skip : gpu_test::allowed_skips()) {
    EXPECT_TRUE(contains(list.text, std::string("  ") + skip.test + "\n")) << skip.test;
    EXPECT_TRUE(contains(sources, std::string("GTEST_SKIP() << \"") + skip.reason)) << skip.reason;
    EXPECT_TRUE(contains(document, std::string("`") + skip.suite + "." + skip.test + "`")) << skip.test;
  }
}

TEST(GpuCheck, InAPartAStepThatIsSkippedIsAFailure) {
  const Json good = part("memcheck", "abc", {3, 0, 0, {}, 1});
  StepResults steps = mode("quick");
  steps.skipped = {{"racecheck", "compute-sanitizer is not on this machine"}};
  EXPECT_TRUE(gpu_test::passed(gpu_test::merge_parts({good}, steps)));
  steps.mode = "part2";
  const Json report = gpu_test::merge_parts({good}, steps);
  EXPECT_FALSE(gpu_test::passed(report));
  EXPECT_EQ(report["checks"]["racecheck"]["reasons"][0], "compute-sanitizer is not on this machine");
}

// A report that would find no place is refused before minutes of work, and its results are said all the same.
TEST(GpuCheck, AReportThatCannotBeWrittenIsAnError) {
  const support::TemporaryFolder owner;
  std::ofstream(owner.file("a.json")) << part("cold", "abc", {3, 0, 0, {}, 1});
  for (const std::string& out : {owner.file("none/out.json"), owner.string()}) {
    const Outcome merged = run(kProgram + " --merge " + out + " " + owner.file("a.json"));
    EXPECT_EQ(merged.exit_code, 4) << merged.text;
    EXPECT_TRUE(contains(merged.text, "passed: 3 run")) << merged.text;
    EXPECT_TRUE(contains(merged.text, "fourfold_gpu_tests: cannot ")) << merged.text;
    const Outcome tests = run(kProgram + " --json " + out);
    EXPECT_EQ(tests.exit_code, 4) << tests.text;
    std::filesystem::create_directories(owner / "built");
    std::ofstream(owner.file("built/fourfold_gpu_tests")) << "#!/bin/sh\nexit 9\n";
    std::filesystem::permissions(owner / "built" / "fourfold_gpu_tests", std::filesystem::perms::owner_all);
    const Outcome script = run(kScript + " --quick --dir " + owner.file("built") + " --out " + out);
    EXPECT_EQ(script.exit_code, 2) << script.text;
    EXPECT_TRUE(contains(script.text, "--out " + out)) << script.text;
  }
}

TEST(GpuCheck, APartThatIsNoJsonFailsAndTheOthersCount) {
  const support::TemporaryFolder owner;
  std::ofstream(owner.file("a.json")) << part("cold", "abc", {3, 0, 0, {}, 1});
  std::ofstream(owner.file("b.json")) << "{\"kind\": ";
  const Outcome merged =
      run(kProgram + " --merge " + owner.file("out.json") + " " + owner.file("a.json") + " " + owner.file("b.json"));
  EXPECT_EQ(merged.exit_code, 1) << merged.text;
  EXPECT_TRUE(contains(merged.text, "b/part")) << merged.text;
  EXPECT_TRUE(contains(merged.text, "FAILED: 4 run, 1 failed")) << merged.text;
}

/// A built folder whose test program runs `body` of the shell; `$json` is the part that it is to write.
Outcome run_with_program(const support::TemporaryFolder& owner, const std::string& arguments, const std::string& body) {
  const std::filesystem::path folder = owner / "gpu", program = folder / "fourfold_gpu_tests";
  std::filesystem::create_directories(folder);
  std::ofstream(program) << "#!/bin/bash\n"
                         << "[ \"$1\" != --merge ] || exec '" << kProgram << "' \"$@\"\n"
                         << "while [ $# -gt 0 ]; do [ \"$1\" != --json ] || json=$2\n"
                         << "[ \"$1\" != --label ] || label=$2; shift; done\n"
                         << body;
  for (const char* name : {"fourfold", "compute-sanitizer"}) {
    const std::filesystem::path other = folder / name;
    std::ofstream(other) << "#!/bin/bash\nwhile [ $# -gt 0 ] && [[ $1 != */fourfold_gpu_tests ]]; do shift; done\n"
                         << "[ $# -eq 0 ] || \"$@\"; code=$?; echo '===== ERROR SUMMARY: 0 errors'; exit $code\n";
    std::filesystem::permissions(other, std::filesystem::perms::owner_all);
  }
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return run("PATH='" + folder.string() + "':$PATH " + kScript + " " + arguments + " --dir '" + folder.string() +
             "' --out '" + owner.file("report.json") + "'");
}

// What a program that dies, or runs nothing, leaves behind must not look like a clean bill.
TEST(GpuCheck, AToolWithoutFindingsInAProgramThatRanNothingFails) {
  const support::TemporaryFolder owner;
  const Outcome died = run_with_program(owner, "--part 2", "exit 9\n");
  EXPECT_EQ(died.exit_code, 1) << died.text;
  const Json report = Json::parse(support::read_bytes(owner.file("report.json")));
  for (const char* tool : {"memcheck", "racecheck", "initcheck", "synccheck"})
    EXPECT_EQ(report["checks"][std::string(tool) + "/end"]["failed"], 1) << report;
}

TEST(GpuCheck, TheScriptCountsASkipInAPartAsAFailure) {
  const support::TemporaryFolder owner;
  const Json skip = skipping("Pairwise", "Case/3: the time for this tool is over", "quick");
  std::ofstream(owner.file("part.json")) << skip;
  const std::string body = "sed \"s/\\\"warm\\\"/\\\"$label\\\"/\" '" + owner.file("part.json") + "' > \"$json\"\n";
  const Outcome outcome = run_with_program(owner, "--part 2", body);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  const Json report = Json::parse(support::read_bytes(owner.file("report.json")));
  EXPECT_EQ(report["mode"], "part2");
  EXPECT_EQ(report["checks"]["racecheck/Pairwise"]["failed"], 1) << report;
  const Outcome quick = run_with_program(owner, "--quick", body);
  EXPECT_EQ(quick.exit_code, 0) << quick.text;
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
  const Json report = Json::parse(support::read_bytes(folder + "/out.json"));
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
