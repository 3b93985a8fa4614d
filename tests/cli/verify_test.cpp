// verify: passes where it must, and sees every planted fault.
#include <sys/stat.h>

#include "program.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;
const Keys kCaseKeys = {"name", "ok", "max_error_over_bound", "refused", "reason"};
const std::vector<std::string> kFaults = {"nan", "zero", "stale", "swap"};

TEST(VerifyCase, PassesEveryCaseOfTheRepository) {
  std::vector<std::string> arguments = {"verify", "case", "--json"};
  const std::vector<std::string> files = case_files();
  ASSERT_EQ(files.size(), 43u);
  arguments.insert(arguments.end(), files.begin(), files.end());
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), (Keys{"cases", "fingerprint"}));
  EXPECT_EQ(outcome.err.rfind("fourfold ", 0), 0u) << outcome.err;
  EXPECT_EQ(json["fingerprint"]["what"], "43 case files");
  EXPECT_EQ(json["fingerprint"]["plans"], files.size());
  ASSERT_EQ(json["cases"].size(), files.size());
  for (const Json& result : json["cases"]) {
    EXPECT_EQ(keys(result), kCaseKeys);
    EXPECT_TRUE(result["ok"].get<bool>()) << result;
    EXPECT_LE(result["max_error_over_bound"].get<double>(), 1.0) << result;
  }
}

TEST(VerifyCase, SeesEveryFault) {
  for (const std::string& fault : kFaults) {
    const Outcome outcome =
        run({"verify", "case", kData + "/cases/plain_nvfp4.safetensors", "--inject", fault, "--json"});
    EXPECT_EQ(outcome.exit_code, 5) << fault << "\n" << outcome.out << outcome.err;
    const Json json = only_object(outcome);
    ASSERT_EQ(json["cases"].size(), 1u);
    EXPECT_FALSE(json["cases"][0]["ok"].get<bool>()) << fault;
    EXPECT_NE(json["cases"][0]["reason"], "") << fault;
  }
}

TEST(VerifyCase, AnUnreadableFileDoesNotHideTheOthers) {
  const TemporaryFolder folder;
  const std::string broken = folder.write("broken.safetensors", "no header");
  const Outcome outcome = run({"verify", "case", kData + "/cases/plain_nvfp4.safetensors", broken, "--json"});
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  const auto cases = nlohmann::json::parse(outcome.out)["cases"];
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_TRUE(cases[0]["ok"].get<bool>());
  EXPECT_FALSE(cases[1]["ok"].get<bool>());
  EXPECT_NE(outcome.err.find("broken.safetensors"), std::string::npos) << outcome.err;
}

// Outputs of about 1e-30 hide a fault within their bounds: then the answer is "not shown", never "ok".
TEST(VerifyMoe, AFaultThatCannotBeSeenIsNoSuccess) {
  for (const char* fault : {"zero", "stale", "swap"}) {
    const Outcome outcome = run({"verify", "moe", "t9 k2 e8 h64 i96 limit=1e-30", "--inject", fault});
    EXPECT_EQ(outcome.exit_code, 5) << fault << outcome.out << outcome.err;
  }
}

TEST(VerifyMoe, PassesSoundProblems) {
  for (const char* problem : {"t1,17 k4 e8 h256 i96 nvfp4 bf16 silu", "t5 k2 e4 h96 i72 mxfp4 f16 swiglu_oai bias",
                              "t3 k2 e4 h64 i64 int4 g16 zp f32 relu2", "t0 k2 e4 h64 i64"}) {
    const Outcome outcome = run({"verify", "moe", problem, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << problem << "\n" << outcome.out << outcome.err;
    Keys expected = kCaseKeys;
    expected.insert("fingerprint");
    EXPECT_EQ(keys(only_object(outcome)), expected) << problem;
  }
}

TEST(VerifyMoe, SeesEveryFault) {
  for (const std::string& fault : kFaults) {
    const Outcome outcome = run({"verify", "moe", "t9 k2 e4 h64 i64 nvfp4 bf16 silu", "--inject", fault});
    EXPECT_EQ(outcome.exit_code, 5) << fault << "\n" << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("FAIL"), std::string::npos) << fault << "\n" << outcome.out;
  }
}

TEST(VerifyModel, PassesExactlyAndHasTheDocumentedKeys) {
  const Outcome outcome =
      run({"verify", "model", kTiny, "--reference", kTiny + "/reference.json", "--activations", "f32", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json),
            (Keys{"max_logit_error", "max_nll_error", "greedy_matched", "greedy_total", "ok", "fingerprint"}));
  EXPECT_TRUE(json["ok"].get<bool>());
  EXPECT_LE(json["max_logit_error"].get<double>(), 2e-4);
  EXPECT_GT(json["greedy_total"].get<int>(), 0);
  EXPECT_EQ(json["greedy_matched"], json["greedy_total"]);
}

TEST(VerifyModel, SeesEveryFault) {
  for (const std::string& fault : kFaults) {
    const Outcome outcome = run({"verify", "model", kTiny, "--reference", kTiny + "/reference.json", "--activations",
                                 "f32", "--inject", fault, "--json"});
    EXPECT_EQ(outcome.exit_code, 5) << fault << "\n" << outcome.out << outcome.err;
    EXPECT_FALSE(only_object(outcome)["ok"].get<bool>()) << fault;
  }
}

TEST(VerifyModel, HonoursTheTolerance) {
  const Outcome outcome = run({"verify", "model", kTiny, "--reference", kTiny + "/reference.json", "--activations",
                               "bf16", "--tolerance", "1e-12"});
  EXPECT_EQ(outcome.exit_code, 5) << outcome.out << outcome.err;
}

TEST(VerifyModel, RefusesAReferenceThatIsNone) {
  const Outcome outcome = run({"verify", "model", kTiny, "--reference", kTiny + "/config.json"});
  EXPECT_EQ(outcome.exit_code, 4) << outcome.out << outcome.err;
  EXPECT_NE(outcome.err.find("config.json"), std::string::npos) << outcome.err;
}

TEST(VerifyDevice, PassesAndLeavesItsReport) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"verify", "--device", "cpu", "--report", folder.file("report.json"), "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(Json::parse(read_bytes(folder.file("report.json")), nullptr, false), json);
  EXPECT_TRUE(json["ok"].get<bool>());
  EXPECT_EQ(json["failed"], 0);
  EXPECT_GT(json["total"].get<int>(), 20);
  // Its line comes before the progress.
  EXPECT_EQ(outcome.err.rfind("fourfold ", 0), 0u) << outcome.err;
  const Json& fingerprint = json["fingerprint"];
  EXPECT_EQ(fingerprint["plans"], json["total"]);
  EXPECT_EQ(fingerprint["bands"], "various");
  EXPECT_EQ(fingerprint["capacity"], 65);
  EXPECT_GT(fingerprint["arena_bytes"].get<std::uint64_t>(), 0u);
  EXPECT_GT(fingerprint["kernels"]["count"], 10);
  EXPECT_EQ(json["cases"].size(), json["total"].get<std::size_t>());
  EXPECT_EQ(folder.names(), std::set<std::string>{"report.json"});
}

TEST(VerifyDevice, SeesAFault) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"verify", "--inject", "stale", "--report", folder.file("report.json")});
  EXPECT_EQ(outcome.exit_code, 5) << outcome.out << outcome.err;
  EXPECT_FALSE(Json::parse(read_bytes(folder.file("report.json")), nullptr, false)["ok"].get<bool>());
}

// Before the minutes that the matrix takes: nothing is computed, nothing is left.
TEST(VerifyDevice, RefusesAReportThatCannotBeWritten) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe"), file = folder.write("file", "old");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::set<std::string> before = folder.names();
  for (const std::string& path : {std::string("/nonexistent/report.json"), folder.string(), pipe, file + "/report"}) {
    const Outcome outcome = run({"verify", "--report", path});
    EXPECT_EQ(outcome.exit_code, 4) << path << outcome.err;
    EXPECT_NE(outcome.err.find("--report " + path + ": cannot be written"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("verify:"), std::string::npos) << "it began to work: " << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(run({"verify", "--report", ""}).exit_code, 2);
  EXPECT_EQ(folder.names(), before);
  EXPECT_EQ(read_bytes(file), "old");
}

TEST(VerifyDevice, AReportReplacesTheOneBefore) {
  const TemporaryFolder folder;
  const std::string file = folder.write("report.json", "old"), other = folder.write("report.json.part", "mine");
  EXPECT_EQ(run({"verify", "--report", file}).exit_code, 0);
  EXPECT_TRUE(Json::parse(read_bytes(file), nullptr, false)["ok"].get<bool>());
  EXPECT_EQ(read_bytes(other), "mine");
  EXPECT_EQ(folder.names(), (std::set<std::string>{"report.json", "report.json.part"}));
}

}  // namespace
}  // namespace fourfold::cli_test
