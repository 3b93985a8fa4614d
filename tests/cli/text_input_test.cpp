// Text must be UTF-8 (RFC 3629); the message names the offset of the first bad byte.
#include "program.h"

namespace fourfold::cli_test {
namespace {

struct Row {
  const char* name;
  std::string bytes;
  int offset;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Malformed : public testing::TestWithParam<Row> {};

TEST_P(Malformed, IsRefusedWithItsOffset) {
  const TemporaryFolder folder;
  const std::string file = folder.write("text", GetParam().bytes);
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"eval", kDemo, "--text", file}, {"generate", kDemo, "--prompt-file", file}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_NE(outcome.err.find("at offset " + std::to_string(GetParam().offset) + " of "), std::string::npos)
        << outcome.err;
    EXPECT_NE(outcome.err.find(file), std::string::npos) << outcome.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Rfc3629, Malformed,
                         testing::Values(Row{"stray_continuation", "ab\x80", 2}, Row{"overlong_2", "a\xc1\xbf", 1},
                                         Row{"overlong_3", "\xe0\x9f\xbf", 0}, Row{"overlong_4", "\xf0\x8f\xbf\xbf", 0},
                                         Row{"surrogate", "xyz\xed\xa0\x80", 3},
                                         Row{"above_10ffff", "\xf4\x90\x80\x80", 0},
                                         Row{"lead_f5", "\xf5\x80\x80\x80", 0}, Row{"byte_ff", "\xff", 0},
                                         Row{"cut_short", "caf\xc3", 3}, Row{"cut_in_the_middle", "\xe2\x82z", 0}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(WellFormed, TextAtTheEdgesOfUtf8IsRead) {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "text", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
  const Outcome outcome = run({"generate", kDemo, "--prompt-file", file, "-n", "1", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(only_object(outcome)["prompt_ids"].size(), 0u);
}

TEST(StandardInput, IsAPromptFile) {
  const TemporaryFolder folder;
  const std::string file = folder.write("text", "In the beginning");
  const Outcome piped = run({"generate", kDemo, "--prompt-file", "-", "-n", "4", "--json"}, {.in = file});
  const Outcome direct = run({"generate", kDemo, "--prompt", "In the beginning", "-n", "4", "--json"});
  ASSERT_EQ(piped.exit_code, 0) << piped.err;
  ASSERT_EQ(direct.exit_code, 0) << direct.err;
  EXPECT_EQ(only_object(piped)["ids"], only_object(direct)["ids"]);
}

}  // namespace
}  // namespace fourfold::cli_test
