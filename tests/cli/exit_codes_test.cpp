// The exit code and the message of everything that can go wrong at the command line.
#include "program.h"

namespace fourfold::cli_test {
namespace {

constexpr const char* kGood = "t4 k2 e4 h64 i64";

struct Row {
  const char* name;
  std::vector<std::string> arguments;
  int exit_code;
  const char* says;  // a part of stderr
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> rows() {
  return {
      {"no_verb", {}, 2, "subcommand"},
      {"unknown_verb", {"frobnicate"}, 2, "frobnicate"},
      {"unknown_option", {"plan", kGood, "--frobnicate"}, 2, "--frobnicate"},
      {"missing_argument", {"plan"}, 2, "problem"},
      {"plan_without_sizes", {"plan", "t4"}, 2, "missing"},
      {"plan_empty", {"plan", ""}, 2, "missing"},
      {"plan_junk_word", {"plan", "t4 k2 e4 h64 i64 frob"}, 2, "frob"},
      {"plan_said_twice", {"plan", "t4 t5 k2 e4 h64 i64"}, 2, "t5"},
      {"plan_junk_digits", {"plan", "t4x k2 e4 h64 i64"}, 2, "4x"},
      {"plan_negative", {"plan", "t-4 k2 e4 h64 i64"}, 2, "-4"},
      {"plan_overflow", {"plan", "t99999999999999999999 k2 e4 h64 i64"}, 2, "2^63"},
      {"plan_binary", {"plan", "\x01\xff\xfe"}, 2, "\\xff"},
      {"plan_unknown_device", {"plan", kGood, "--device", "abacus"}, 2, "abacus"},
      {"plan_unknown_arch", {"plan", "t4 k2 e4 h64 i64 @abacus"}, 2, "abacus"},
      {"plan_refused_hidden", {"plan", "t4 k2 e4 h65 i64"}, 3, "65"},
      {"plan_refused_top_k", {"plan", "t4 k65 e4 h64 i64"}, 3, "65"},
      {"plan_refused_product", {"plan", "t9223372036854775807 k2 e4 h64 i64"}, 3, "9223372036854775807"},
      {"bench_refused", {"bench", "moe", "t4 k2 e4 h65 i64"}, 3, "65"},
      {"bench_no_tokens", {"bench", "moe", "t0 k2 e4 h64 i64"}, 2, "t0"},
      {"bench_few_calls", {"bench", "moe", kGood, "--calls", "3"}, 2, "calls"},
      {"bench_wrong_device", {"bench", "moe", kGood, "--device", "h200"}, 7, "h200"},
      {"bench_two_devices", {"bench", "moe", "t4 k2 e4 h64 i64 @h200"}, 2, "h200"},
      {"verify_moe_refused", {"verify", "moe", "t4 k2 e4 h65 i64"}, 3, "65"},
      {"verify_unknown_fault", {"verify", "moe", kGood, "--inject", "gremlin"}, 2, "gremlin"},
      {"verify_no_such_case", {"verify", "case", "/nonexistent.safetensors"}, 4, "/nonexistent.safetensors"},
      {"verify_not_a_case", {"verify", "case", kSource + "/CMakeLists.txt"}, 4, "CMakeLists.txt"},
      {"verify_wrong_device", {"verify", "--device", "h200"}, 7, "h200"},
      {"verify_report_of_none", {"verify", "--report", "r.json", "moe", kGood}, 2, "--report"},
      {"verify_device_before_model", {"verify", "--device", "cpu", "model", kTiny, "--reference", "x"}, 2, "--device"},
      {"verify_seed_wraps", {"verify", "moe", kGood, "--seed", "-1"}, 2, "-1"},
      {"verify_seed_saturates", {"verify", "moe", kGood, "--seed", "18446744073709551616"}, 2, "18446744073709551616"},
      {"plan_two_devices", {"plan", "t4 k2 e4 h64 i64 @h200", "--device", "cpu"}, 2, "h200"},
      {"quantize_nowhere", {"quantize", kTiny, "-o", "", "--format", "nvfp4"}, 2, "empty"},
      {"inspect_nothing_there", {"inspect", "/nonexistent"}, 4, "/nonexistent"},
      {"inspect_no_safetensors", {"inspect", kSource + "/CMakeLists.txt"}, 4, "CMakeLists.txt"},
      {"generate_no_prompt", {"generate", kTiny}, 2, "prompt"},
      {"generate_two_prompts", {"generate", kTiny, "--prompt", "a", "--ids", "1"}, 2, "prompt"},
      {"generate_no_tokens", {"generate", kTiny, "--ids", "1", "-n", "0"}, 2, "tokens"},
      {"generate_junk_ids", {"generate", kTiny, "--ids", "1,x,3"}, 2, "'x'"},
      {"generate_empty_id", {"generate", kTiny, "--ids", "1,,3"}, 2, "entry 1"},
      {"generate_negative_id", {"generate", kTiny, "--ids", "-1"}, 2, "-1"},
      {"generate_id_beyond", {"generate", kTiny, "--ids", "1000000"}, 2, "1000000"},
      {"generate_temperature", {"generate", kTiny, "--ids", "1", "--temperature", "-1"}, 2, "--temperature"},
      {"generate_temperature_nan", {"generate", kTiny, "--ids", "1", "--temperature", "nan"}, 2, "--temperature"},
      {"generate_top_p", {"generate", kTiny, "--ids", "1", "--top-p", "0"}, 2, "--top-p"},
      {"generate_min_p", {"generate", kTiny, "--ids", "1", "--min-p", "2"}, 2, "--min-p"},
      {"generate_penalty", {"generate", kTiny, "--ids", "1", "--repetition-penalty", "0"}, 2, "--repetition-penalty"},
      {"generate_no_tokenizer", {"generate", kTiny, "--prompt", "hello"}, 4, "tokenizer.json"},
      {"generate_no_model", {"generate", "/nonexistent", "--ids", "1"}, 4, "/nonexistent"},
      {"generate_unknown_family", {"generate", kData + "/tiny/mixtral", "--ids", "1"}, 3, "Qwen3MoeForCausalLM"},
      {"generate_prompt_not_utf8", {"generate", kDemo, "--prompt", "a\xff"}, 4, "offset 1"},
      {"generate_empty_prompt", {"generate", kDemo, "--prompt", ""}, 2, "empty"},
      {"generate_activations", {"generate", kTiny, "--ids", "1", "--activations", "fp8"}, 2, "fp8"},
      {"eval_no_text", {"eval", kDemo, "--text", "/nonexistent.txt"}, 4, "/nonexistent.txt"},
      {"eval_text_is_a_folder", {"eval", kDemo, "--text", "/"}, 4, "directory"},
      {"eval_window", {"eval", kDemo, "--text", "-", "--window", "0"}, 2, "window"},
      {"quantize_format", {"quantize", kTiny, "-o", "/nonexistent/x", "--format", "fp3"}, 2, "fp3"},
      {"quantize_group",
       {"quantize", kTiny, "-o", "/nonexistent/x", "--format", "int4", "--group-size", "48"},
       2,
       "48"},
      {"quantize_nvfp4_group",
       {"quantize", kTiny, "-o", "/nonexistent/x", "--format", "nvfp4", "--group-size", "32"},
       2,
       "32"},
      {"quantize_nvfp4_zeros",
       {"quantize", kTiny, "-o", "/nonexistent/x", "--format", "nvfp4", "--asymmetric"},
       2,
       "--asymmetric"},
      {"quantize_int4_rule",
       {"quantize", kTiny, "-o", "/nonexistent/x", "--format", "int4", "--four-over-six"},
       2,
       "--four-over-six"},
      {"quantize_layout",
       {"quantize", kTiny, "-o", "/nonexistent/x", "--format", "int4", "--layout", "modelopt"},
       2,
       "modelopt"},
  };
}

class ExitCode : public testing::TestWithParam<Row> {};

TEST_P(ExitCode, IsTheDocumentedOneAndTheMessageNamesTheCause) {
  const Row& row = GetParam();
  const Outcome outcome = run(row.arguments);
  EXPECT_EQ(outcome.exit_code, row.exit_code) << outcome.err;
  EXPECT_NE(outcome.err.find(row.says), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

INSTANTIATE_TEST_SUITE_P(Table, ExitCode, testing::ValuesIn(rows()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(ErrorsAsJson, CarryCodeAndText) {
  const std::vector<std::pair<std::vector<std::string>, int>> calls = {
      {{"plan", "t4", "--json"}, 2},
      {{"plan", "t4 k2 e4 h65 i64", "--json"}, 3},
      {{"inspect", "/nonexistent", "--json"}, 4},
      {{"bench", "moe", "t1 k2 e4 h64 i64", "--device", "h200", "--json"}, 7},
      {{"frobnicate", "--json"}, 2},
  };
  for (const auto& [arguments, code] : calls) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, code) << arguments[0];
    const nlohmann::json json = only_object(outcome);
    ASSERT_TRUE(json.contains("error")) << outcome.out;
    EXPECT_EQ(keys(json["error"]), (std::set<std::string>{"code", "text"}));
    EXPECT_EQ(json["error"]["code"], code);
    EXPECT_NE(outcome.err.find(json["error"]["text"].get<std::string>()), std::string::npos) << outcome.err;
  }
}

TEST(FullDisk, UnderStdoutIsAnError) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"inspect", kTiny}, {"inspect", kTiny, "--json"}, {"--help"}, {"--version"}}) {
    const Outcome outcome = run(arguments, {.out = "/dev/full"});
    EXPECT_EQ(outcome.exit_code, 4) << arguments[0];
    EXPECT_NE(outcome.err.find("standard output"), std::string::npos) << outcome.err;
  }
}

TEST(ClosedPipe, IsNoError) {
  const Outcome outcome = run({"inspect", kTiny, "--tensors"}, {.out_is_closed_pipe = true});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.err, "");
}

TEST(ClosedPipe, DoesNotHideAVerdict) {
  const Outcome outcome = run({"verify", "case", kData + "/cases/plain_nvfp4.safetensors", "--inject", "zero"},
                              {.out_is_closed_pipe = true});
  EXPECT_EQ(outcome.exit_code, 5) << outcome.err;
}

TEST(ClosedPipe, EndsGeneration) {
  const Outcome outcome = run({"generate", kDemo, "--prompt", "In the", "-n", "8"}, {.out_is_closed_pipe = true});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace
}  // namespace fourfold::cli_test
