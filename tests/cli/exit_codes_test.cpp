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

/// plan's questions, and reading a log.
std::vector<Row> plan_rows() {
  return {
      {"plan_nothing", {"plan"}, 2, "--model"},
      {"plan_problem_and_model", {"plan", kGood, "--model", kDemo}, 2, "leave one out"},
      {"plan_no_such_model", {"plan", "--model", "/nonexistent"}, 4, "/nonexistent"},
      {"plan_format_without_model", {"plan", kGood, "--format", "int4"}, 2, "--format"},
      {"plan_sms_of_a_cpu", {"plan", kGood, "--sms", "188"}, 2, "--sms is for a GPU"},
      {"plan_threads_of_a_gpu", {"plan", kGood, "--device", "h200", "--threads", "2"}, 2, "--threads is for a CPU"},
      {"plan_smem_junk", {"plan", kGood, "--device", "h200", "--smem", "12Q"}, 2, "12Q"},
      {"plan_no_tp", {"plan", kGood, "--tp", "0"}, 2, "--tp"},
      {"plan_too_many_ranks", {"plan", kGood, "--tp", "5"}, 3, "at most 4"},
      {"plan_too_many_expert_ranks", {"plan", kGood, "--ep", "5"}, 3, "use 4"},
      {"plan_capture_beyond", {"plan", kGood, "--capture", "1,5"}, 3, "--capture 5"},
      {"plan_capture_zero", {"plan", kGood, "--capture", "0"}, 2, "--capture"},
      {"plan_unknown_system", {"plan", kGood, "--device", "h200", "--compare", "abacus"}, 2, "known: b12x"},
      {"plan_unknown_variant", {"plan", kGood, "--device", "h200", "--compare", "b12x:block=9"}, 2, "8, 16, 32"},
      {"plan_sweep_junk", {"plan", kGood, "--sweep", "512,1024"}, 2, "capacity=512"},
      {"plan_sweep_empty_entry", {"plan", kGood, "--sweep", "capacity=512,,1024"}, 2, "''"},
      {"plan_sweep_zero", {"plan", kGood, "--sweep", "capacity=0"}, 2, "'0'"},
      {"plan_bench_alone", {"plan", kGood, "--bench", "x.json"}, 2, "--sweep"},
      {"plan_bench_missing", {"plan", kGood, "--sweep", "capacity=4", "--bench", "/nonexistent"}, 4, "/nonexistent"},
      {"plan_bench_folder", {"plan", kGood, "--sweep", "capacity=4", "--bench", kData}, 4, "cannot be read"},
      {"plan_sweep_beyond",
       {"plan", kGood, "--device", "h200", "--sweep", "capacity=4,2147483647"},
       3,
       "use 1073741823"},
      {"plan_chunk_alone", {"plan", kGood, "--chunk", "4"}, 2, "--sweep"},
      {"plan_dcp_alone", {"plan", kGood, "--dcp", "2"}, 2, "--kv-record-bytes"},
      {"plan_kv_layers_alone", {"plan", kGood, "--kv-layers", "3"}, 2, "--kv-record-bytes"},
      {"plan_reserve_alone", {"plan", kGood, "--device", "h200", "--reserve", "1G"}, 2, "--pool"},
      {"plan_reserve_of_a_cpu", {"plan", kGood, "--device", "cpu", "--reserve", "1G"}, 2, "--memory"},
      {"plan_other_weights_alone", {"plan", kGood, "--device", "h200", "--other-weights", "1G"}, 2, "--model"},
      {"plan_too_many_items", {"plan", "t2000000000 k1 e160 h6144 i2048", "--device", "h200"}, 3, "2147483647"},
      {"plan_fit_junk", {"plan", kGood, "--fit", "much"}, 2, "much"},
      {"plan_fit_negative", {"plan", kGood, "--fit=-1"}, 2, "-1"},
      {"plan_fit_nothing", {"plan", kGood, "--fit", "1"}, 3, "short by"},
      {"plan_fit_both",
       {"plan", kGood, "--fit", "1G", "--fit-tokens", "1", "--kv-bytes-per-token", "1", "--pool", "1G"},
       2,
       "leave one out"},
      {"plan_fit_tokens_price", {"plan", kGood, "--fit-tokens", "1"}, 2, "--kv-bytes-per-token"},
      {"plan_fit_tokens_pool", {"plan", kGood, "--fit-tokens", "1", "--kv-bytes-per-token", "9"}, 2, "--pool"},
      {"plan_fit_tokens_too_many",
       {"plan", kGood, "--fit-tokens", "1000", "--kv-bytes-per-token", "1M", "--pool", "1M"},
       3,
       "at most 1 tokens"},
      {"plan_kv_twice", {"plan", kGood, "--kv-bytes-per-token", "1", "--kv-record-bytes", "1"}, 2, "leave one out"},
      {"plan_kv_record_alone", {"plan", kGood, "--kv-record-bytes", "368"}, 2, "--kv-layers"},
      {"plan_exl3", {"plan", "t4 k2 e4 h128 i128 exl3", "--fit", "1G"}, 3, "exl3"},
      {"plan_exl3_sizes", {"plan", "t4 k2 e4 h64 i128 exl3"}, 3, "multiples"},
      {"plan_svg_nowhere", {"plan", kGood, "--svg", "/nonexistent/a.svg"}, 4, "/nonexistent/a.svg"},
      {"plan_diff_missing", {"plan", "diff", "/nonexistent", "/nonexistent"}, 4, "/nonexistent"},
      {"plan_diff_no_plan", {"plan", "diff", kSource + "/CMakeLists.txt", kSource + "/CMakeLists.txt"}, 4, "no plan"},
      {"plan_diff_folder", {"plan", "diff", kData, kData}, 4, "cannot be read"},
      {"plan_check_folder", {"plan", "check", kData}, 4, "cannot be read"},
      {"plan_check_missing", {"plan", "check", "/nonexistent"}, 4, "/nonexistent"},
      {"plan_check_no_object", {"plan", "check", kSource + "/CMakeLists.txt"}, 4, "no JSON object"},
      {"scan_missing", {"doctor", "--scan", "/nonexistent"}, 4, "/nonexistent"},
      {"scan_line_alone", {"doctor", "--from-line", "3"}, 2, "--scan"}};
}

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

INSTANTIATE_TEST_SUITE_P(Plan, ExitCode, testing::ValuesIn(plan_rows()),
                         [](const auto& instance) { return std::string(instance.param.name); });

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
