// inspect, quantize, generate and eval on the repository's own checkpoints.
#include <sys/resource.h>

#include <csignal>

#include "program.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;
const Keys kInspectKeys = {"path",          "architecture", "layers",      "hidden",
                           "vocabulary",    "experts",      "top_k",       "expert_intermediate",
                           "quantization",  "tensors",      "total_bytes", "expert_bytes",
                           "bytes_by_dtype"};
const Keys kGenerateKeys = {
    "prompt_ids",        "ids",          "text",       "prefill_tokens_per_second", "decode_tokens_per_second",
    "peak_memory_bytes", "load_seconds", "fingerprint"};

TEST(Inspect, DescribesTheDemoModel) {
  const Outcome outcome = run({"inspect", kDemo, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), kInspectKeys);
  EXPECT_EQ(json["architecture"], "Qwen3MoeForCausalLM");
  EXPECT_EQ(json["layers"], 6);
  EXPECT_EQ(json["hidden"], 256);
  EXPECT_EQ(json["vocabulary"], 4096);
  EXPECT_EQ(json["experts"], 24);
  EXPECT_EQ(json["top_k"], 4);
  EXPECT_EQ(json["expert_intermediate"], 96);
  // 6 layers of 24 experts of 3 matrices of 256 x 96 bf16.
  EXPECT_EQ(json["expert_bytes"].get<std::uint64_t>(), 6ull * 24 * 3 * 256 * 96 * 2);
  std::uint64_t sum = 0;
  for (const auto& [dtype, bytes] : json["bytes_by_dtype"].items()) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(sum, json["total_bytes"].get<std::uint64_t>());
}

TEST(Inspect, ListsTensors) {
  const Outcome outcome = run({"inspect", kDemo, "--tensors", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  ASSERT_GT(json["tensors"].get<std::size_t>(), 400u);
  ASSERT_EQ(json["tensor_list"].size(), json["tensors"].get<std::size_t>());
  EXPECT_EQ(keys(json["tensor_list"][0]), (Keys{"name", "file", "dtype", "shape", "bytes"}));
}

TEST(Inspect, ReadsASingleFileAndForeignArchitectures) {
  const Outcome file = run({"inspect", kTiny + "/model.safetensors"});
  EXPECT_EQ(file.exit_code, 0) << file.err;
  std::size_t checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData + "/tiny")) {
    ++checked;
    const Outcome outcome = run({"inspect", entry.path().string()});
    EXPECT_EQ(outcome.exit_code, 0) << entry.path() << outcome.err;
    EXPECT_NE(outcome.out.find("architecture"), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(checked, 8u);
}

struct Format {
  const char* name;
  std::vector<std::string> options;
};
void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

class Quantize : public testing::TestWithParam<Format> {};

TEST_P(Quantize, GivesACheckpointThatIsSmallerAndRuns) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments = {"quantize", kTiny, "-o", folder.file("out"), "--json"};
  arguments.insert(arguments.end(), GetParam().options.begin(), GetParam().options.end());
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), (Keys{"source", "destination", "format", "bytes_before", "bytes_after", "expert_bytes_before",
                              "expert_bytes_after", "matrices", "relative_rms_error", "max_abs_error", "seconds"}));
  EXPECT_LT(json["expert_bytes_after"].get<std::uint64_t>() * 2, json["expert_bytes_before"].get<std::uint64_t>());
  EXPECT_GT(json["relative_rms_error"].get<double>(), 0.02);
  EXPECT_LT(json["relative_rms_error"].get<double>(), 0.25);
  EXPECT_EQ(folder.names(), std::set<std::string>{"out"});

  const Json inspected = only_object(run({"inspect", folder.file("out"), "--json"}));
  EXPECT_EQ(inspected["total_bytes"], json["bytes_after"]);
  const Outcome generated = run({"generate", folder.file("out"), "--ids", "1,2,3", "-n", "4", "--json"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_GT(only_object(generated)["ids"].size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Quantize,
    testing::Values(Format{"nvfp4", {"--format", "nvfp4"}},
                    Format{"nvfp4_four_over_six", {"--format", "nvfp4", "--four-over-six"}},
                    Format{"nvfp4_compressed_tensors", {"--format", "nvfp4", "--layout", "compressed-tensors"}},
                    Format{"mxfp4", {"--format", "mxfp4"}}, Format{"int4", {"--format", "int4"}},
                    Format{"int4_g16_asymmetric", {"--format", "int4", "--group-size", "16", "--asymmetric"}},
                    Format{"int4_row", {"--format", "int4", "--group-size", "row"}}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(QuantizeRefuses, AFolderThatHoldsSomething) {
  const TemporaryFolder folder;
  folder.write("precious", "data");
  const Outcome outcome = run({"quantize", kTiny, "-o", folder.file(""), "--format", "nvfp4"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_EQ(folder.names(), std::set<std::string>{"precious"});
}

class QuantizeInterrupted : public testing::TestWithParam<int> {};

TEST_P(QuantizeInterrupted, LeavesNothing) {
  const TemporaryFolder folder;
  const std::string source = kDemo, destination = folder.file("out");
  int errors[2];
  ASSERT_EQ(pipe2(errors, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
  const char* argv[] = {kProgram.c_str(), "quantize", source.c_str(),    "-o",   destination.c_str(),
                        "--format",       "nvfp4",    "--four-over-six", nullptr};
  pid_t child = -1;
  ASSERT_EQ(posix_spawn(&child, kProgram.c_str(), &actions, nullptr, const_cast<char**>(argv), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(errors[1]);
  char first = 0;
  ASSERT_EQ(read(errors[0], &first, 1), 1);  // the line of the first shard: work is going on, most of it is to come
  kill(child, GetParam());
  int status = 0;
  waitpid(child, &status, 0);
  close(errors[0]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + GetParam());
  EXPECT_EQ(folder.names(), std::set<std::string>{});
}
INSTANTIATE_TEST_SUITE_P(Signals, QuantizeInterrupted, testing::Values(SIGINT, SIGTERM, SIGHUP));

// A file-size limit is a failed write like a full disk, not a death by signal.
TEST(QuantizeLimited, LeavesNothing) {
  const TemporaryFolder folder;
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Outcome outcome = run({"quantize", kDemo, "-o", folder.file("new/out"), "--format", "nvfp4"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
  EXPECT_EQ(folder.names(), std::set<std::string>{});
}

TEST(Generate, HasTheDocumentedKeysAndRepeatsItself) {
  const std::vector<std::string> arguments = {"generate", kDemo, "--prompt", "In the beginning", "-n", "12", "--json"};
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), kGenerateKeys);
  EXPECT_EQ(json["ids"].size(), 12u);
  EXPECT_NE(json["text"], "");
  EXPECT_GT(json["prefill_tokens_per_second"].get<double>(), 0);
  EXPECT_GT(json["decode_tokens_per_second"].get<double>(), 0);
  EXPECT_GT(json["peak_memory_bytes"].get<std::uint64_t>(), 1u << 20);
  EXPECT_EQ(only_object(run(arguments))["ids"], json["ids"]);
}

TEST(Generate, StreamsTheTextThatJsonReports) {
  const std::vector<std::string> arguments = {"generate", kDemo, "--prompt", "In the beginning", "-n", "12"};
  const Outcome streamed = run(arguments);
  ASSERT_EQ(streamed.exit_code, 0) << streamed.err;
  EXPECT_NE(streamed.err.find("tokens/s"), std::string::npos) << streamed.err;
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  EXPECT_EQ(streamed.out, only_object(run(with_json))["text"].get<std::string>() + "\n");
}

TEST(Generate, SamplesBySeed) {
  const auto sample = [](const char* seed) {
    return only_object(
        run({"generate", kDemo, "--prompt", "The", "-n", "24", "--temperature", "1.2", "--top-k", "200", "--top-p",
             "0.98", "--min-p", "0.001", "--repetition-penalty", "1.1", "--seed", seed, "--json"}))["ids"];
  };
  const Json first = sample("7");
  ASSERT_GT(first.size(), 0u);
  EXPECT_EQ(first, sample("7"));
  EXPECT_NE(first, sample("8"));
}

TEST(Generate, ReadsTheSameWithoutMapping) {
  const Json mapped = only_object(run({"generate", kDemo, "--prompt", "The", "-n", "6", "--json"}));
  const Json read = only_object(run({"generate", kDemo, "--prompt", "The", "-n", "6", "--no-mmap", "--json"}));
  EXPECT_EQ(mapped["ids"], read["ids"]);
}

TEST(Generate, PrintsIdsForAModelWithoutATokenizer) {
  const Outcome outcome = run({"generate", kTiny, "--ids", "1,2,3", "-n", "4", "--activations", "f32"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find_first_of("0123456789"), std::string::npos) << outcome.out;
}

TEST(Eval, HasTheDocumentedKeysAndAPlausiblePerplexity) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text", read_bytes(kDemo + "/heldout.txt").substr(0, 6000));
  const Outcome outcome = run({"eval", kDemo, "--text", text, "--window", "128", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json),
            (Keys{"mean_nll", "perplexity", "tokens", "window", "format", "device", "seconds", "fingerprint"}));
  EXPECT_EQ(json["window"], 128);
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_GT(json["tokens"].get<int>(), 0);
  EXPECT_EQ(json["tokens"].get<int>() % 128, 0);
  const double nll = json["mean_nll"].get<double>();
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(nll), 1e-9 * std::exp(nll));
  EXPECT_GT(nll, 2.0);  // the whole text has 3.286; uniform guessing over 4096 tokens would be 8.3
  EXPECT_LT(nll, 5.0);
}

TEST(Eval, RefusesATextThatIsTooShort) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"eval", kDemo, "--text", folder.write("text", "too short")});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("512"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace fourfold::cli_test
