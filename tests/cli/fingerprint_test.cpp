// One line at the start of a run, and its JSON: what ran, from which sources, with which kernels.
#include <cstdio>

#include "program.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;

TEST(Fingerprint, StandsAtTheTopOfARun) {
  const Outcome outcome = run({"verify", "moe", "t1,9 k2 e4 h64 i64", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.rfind("fourfold ", 0), 0u) << outcome.err;
  const Json fingerprint = only_object(outcome)["fingerprint"];
  EXPECT_EQ(keys(fingerprint), (Keys{"version", "commit", "sources", "program", "device", "what", "plans", "bands",
                                     "capacity", "context", "arena_bytes", "weight_bytes", "kernels", "seconds"}));
  EXPECT_EQ(fingerprint["plans"], 1);
  EXPECT_TRUE(fingerprint["context"].is_null());
  EXPECT_EQ(fingerprint["what"], "t9 k2 e4 h64 i64 nvfp4 bf16 silu");
  EXPECT_EQ(fingerprint["capacity"], 9);
  EXPECT_EQ(fingerprint["program"].get<std::string>().size(), 16u);
  const Json planned = only_object(run({"plan", "t9 k2 e4 h64 i64", "--json"}));
  EXPECT_EQ(fingerprint["arena_bytes"], planned["workspace_bytes"]);
  EXPECT_NE(outcome.err.find("arena " + std::to_string(planned["workspace_bytes"].get<std::uint64_t>())),
            std::string::npos)
      << outcome.err;
}

TEST(Fingerprint, ItsSourceDigestIsWhatSha256sumSays) {
  const std::string command =
      "cd " + kSource +
      " && find include kernels src -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort | "
      "xargs sha256sum | sha256sum";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char text[256] = {};
  ASSERT_NE(std::fgets(text, sizeof text, pipe), nullptr);
  ASSERT_EQ(pclose(pipe), 0);
  const Outcome outcome = run({"verify", "moe", "t1 k1 e2 h64 i64", "--json"});
  EXPECT_EQ(only_object(outcome)["fingerprint"]["sources"], std::string(text, 16));
  EXPECT_NE(outcome.err.find("sources " + std::string(text, 16)), std::string::npos) << outcome.err;
}

TEST(Fingerprint, OfAModelHasItsExpertsPlan) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  ASSERT_EQ(run({"quantize", kTiny, "-o", model, "--format", "nvfp4"}).exit_code, 0);
  const Outcome outcome = run({"generate", model, "--ids", "1,2", "-n", "1", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json fingerprint = only_object(outcome)["fingerprint"];
  EXPECT_EQ(fingerprint["plans"], 1);
  EXPECT_GT(fingerprint["capacity"], 0);
  EXPECT_GE(fingerprint["context"], fingerprint["capacity"]);
  EXPECT_GT(fingerprint["arena_bytes"], 0);
  EXPECT_NE(fingerprint["bands"], "none");
  EXPECT_GT(fingerprint["kernels"]["count"], 0);
  // Experts in 16 bits have no plan.
  const Json plain = only_object(run({"generate", kTiny, "--ids", "1,2", "-n", "1", "--json"}))["fingerprint"];
  EXPECT_EQ(plain["plans"], 0);
  EXPECT_EQ(plain["bands"], "none");
  EXPECT_EQ(plain["arena_bytes"], 0);
}

}  // namespace
}  // namespace fourfold::cli_test
