// Checkpoints whose config and tensors disagree are refused by every verb that would use them, and nothing is written.
#include <functional>

#include "program.h"

namespace fourfold::cli_test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

struct Edit {
  const char* name;
  std::function<void(Json&)> change;  // of config.json
  const char* says;
  int exit_code = 4;
};
void PrintTo(const Edit& edit, std::ostream* out) { *out << edit.name; }

std::vector<Edit> edits() {
  return {
      {"fewer_layers", [](Json& c) { c["num_hidden_layers"] = 1; }, "model.layers.1."},
      {"more_layers", [](Json& c) { c["num_hidden_layers"] = 3; }, "model.layers.2."},
      {"fewer_experts", [](Json& c) { c["num_experts"] = 7; }, "gate.weight"},
      {"absurd_experts", [](Json& c) { c["num_experts"] = 2147483648; }, "2147483648"},
      {"tied_head", [](Json& c) { c["tie_word_embeddings"] = true; }, "lm_head.weight"},
      {"scaled_rope_beside",
       [](Json& c) {
         c["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
       },
       "yarn", 3},
      {"rope_factor_alone",
       [](Json& c) {
         c["rope_scaling"] = {{"factor", 2.0}};
       },
       "rope_type"},
      {"huge_eps", [](Json& c) { c["rms_norm_eps"] = 1e308; }, "rms_norm_eps"},
      {"tiny_theta",
       [](Json& c) {
         c.erase("rope_parameters");
         c["rope_theta"] = 1e-300;
       },
       "rope_theta"},
  };
}

class BadConfig : public testing::TestWithParam<Edit> {};

TEST_P(BadConfig, IsRefusedByGenerateAndQuantize) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model"), target = folder.file("quantised");
  fs::copy(kTiny, model);
  Json config = Json::parse(read_bytes(model + "/config.json"));
  for (const char* spelling : {"num_local_experts", "num_experts"})
    if (config.contains(spelling)) {
      config["num_experts"] = config[spelling];
      if (std::string(spelling) != "num_experts") config.erase(spelling);
      break;
    }
  GetParam().change(config);
  std::ofstream(model + "/config.json") << config;
  const std::vector<std::vector<std::string>> calls{{"generate", model, "--ids", "1,2,3", "-n", "2"},
                                                    {"quantize", model, "-o", target, "--format", "nvfp4"}};
  for (const auto& call : calls) {
    const Outcome outcome = run(call);
    EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.out << outcome.err;
    EXPECT_NE(outcome.err.find(GetParam().says), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(folder.names(), std::set<std::string>{"model"});
}
INSTANTIATE_TEST_SUITE_P(Edits, BadConfig, testing::ValuesIn(edits()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(BadTokenizer, AFolderInItsPlaceIsABadFile) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  fs::copy(kTiny, model);
  fs::create_directory(model + "/tokenizer.json");
  const Outcome outcome = run({"generate", model, "--ids", "1", "-n", "1"});
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("tokenizer.json"), std::string::npos) << outcome.err;
}

TEST(Inspect, AnAbsurdExpertCountEndsAtOnce) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  fs::copy(kTiny, model);
  Json config = Json::parse(read_bytes(model + "/config.json"));
  config.erase("num_local_experts");
  config["num_experts"] = 2147483648;
  std::ofstream(model + "/config.json") << config;
  EXPECT_EQ(run({"inspect", model, "--json"}).exit_code, 0);
}

// What a file says must not steer the terminal.
TEST(Inspect, MasksControlCharactersInNames) {
  const TemporaryFolder folder;
  const std::string header = R"({"\u001b[31mred\n":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const Outcome outcome = run({"inspect", folder.write("a.safetensors", bytes + header), "--tensors"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("?[31mred?"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace fourfold::cli_test
