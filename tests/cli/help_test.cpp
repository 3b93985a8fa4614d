// Every verb explains itself, with examples.
#include "program.h"

namespace fourfold::cli_test {
namespace {

class Help : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Help, SucceedsAndShowsAnExample) {
  std::vector<std::string> arguments = GetParam();
  arguments.push_back("--help");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("Example"), std::string::npos) << outcome.out;
  std::string words = "fourfold";
  for (const std::string& word : GetParam()) words += " " + word;
  EXPECT_NE(outcome.out.find(words + " "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

INSTANTIATE_TEST_SUITE_P(
    Verbs, Help,
    testing::Values(std::vector<std::string>{}, std::vector<std::string>{"inspect"},
                    std::vector<std::string>{"quantize"}, std::vector<std::string>{"generate"},
                    std::vector<std::string>{"eval"}, std::vector<std::string>{"plan"},
                    std::vector<std::string>{"plan", "diff"}, std::vector<std::string>{"plan", "check"},
                    std::vector<std::string>{"bench"}, std::vector<std::string>{"bench", "moe"},
                    std::vector<std::string>{"verify"}, std::vector<std::string>{"verify", "model"},
                    std::vector<std::string>{"verify", "case"}, std::vector<std::string>{"verify", "moe"},
                    std::vector<std::string>{"kernels"}, std::vector<std::string>{"kernels", "list"},
                    std::vector<std::string>{"kernels", "build"}, std::vector<std::string>{"kernels", "prewarm"},
                    std::vector<std::string>{"kernels", "stat"}, std::vector<std::string>{"kernels", "trim"},
                    std::vector<std::string>{"kernels", "verify"}, std::vector<std::string>{"kernels", "clear"},
                    std::vector<std::string>{"kernels", "export"}, std::vector<std::string>{"kernels", "import"},
                    std::vector<std::string>{"doctor"}));

TEST(Version, NamesTheProgramAndTheCommit) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.out.starts_with("fourfold ")) << outcome.out;
  EXPECT_NE(outcome.out.find("("), std::string::npos) << outcome.out;
}

TEST(Documentation, HasASectionForEveryVerb) {
  const std::string document = read_bytes(kSource + "/docs/cli.md");
  for (const char* verb :
       {"inspect", "quantize", "generate", "eval", "plan", "bench moe", "verify", "kernels", "doctor"})
    EXPECT_NE(document.find(std::string("\n## ") + verb + "\n"), std::string::npos) << verb;
}

}  // namespace
}  // namespace fourfold::cli_test
