// tools/plot_bench: which numbers it would draw, and what it refuses. Drawing itself needs matplotlib and is not
// tested.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/shell.h"
#include "support/temporary_folder.h"

namespace fourfold::lint {
namespace {

using Json = nlohmann::json;

const std::string kScript = FOURFOLD_SOURCE_DIR "/tools/plot_bench";

using Outcome = support::ShellOutcome;

Outcome run(const std::string& arguments) { return support::run_shell(kScript + " " + arguments); }

Json row(const std::string& shape, int tokens, double ratio, const std::string& format = "nvfp4") {
  return {{"shape", shape},
          {"tokens", tokens},
          {"format", format},
          {"ratio", ratio},
          {"slices", 1},
          {"routing", "uniform"},
          {"floor_us", 10},
          {"layer", {{"median_us", 10 * ratio}, {"low_us", 9.5 * ratio}, {"high_us", 11 * ratio}}},
          {"problem", "t1 k8 e8 h64 i64 " + format}};
}

struct PlotBench : testing::Test {
  support::TemporaryFolder folder;
  void SetUp() override {
    if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  }
  std::string file(const std::string& name, const std::vector<Json>& rows) const {
    const Json report = {{"kind", "bench_moe"}, {"device", "a"}, {"commit", "c"}, {"dirty", false}, {"rows", rows}};
    std::ofstream(folder.file(name)) << report.dump();
    return folder.file(name);
  }
};

TEST_F(PlotBench, ShowsOursBesideThePeers) {
  Json sliced = row("Qwen3-235B", 8, 9), skewed = row("Qwen3-235B", 16, 9);
  sliced["slices"] = 2;
  skewed["routing"] = "zipf";
  const std::string first = file("first.json", {row("Qwen3-235B", 1, 1.5), row("Qwen3-235B", 64, 1.25), sliced, skewed,
                                                row("Qwen3-235B", 2, 3, "mxfp4"), row("", 4, 3)});
  const std::string second = file("second.json", {row("Qwen3-235B", 64, 1.125)});
  const Outcome outcome = run(first + " " + second + " --text");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const auto has = [&](const std::string& line) { return outcome.text.find(line + "\n") != std::string::npos; };
  EXPECT_TRUE(has("Qwen3-235B\t1\t1.50\t2.80")) << outcome.text;
  EXPECT_TRUE(has("Qwen3-235B\t64\t1.12\t1.66")) << "the later report counts\n" << outcome.text;
  EXPECT_TRUE(has("Qwen3-235B\t2\t-\t2.22")) << "another format\n" << outcome.text;
  EXPECT_TRUE(has("Qwen3-235B\t8\t-\t1.75")) << "slices\n" << outcome.text;
  EXPECT_TRUE(has("Qwen3-235B\t16\t-\t1.67")) << "another routing\n" << outcome.text;
  EXPECT_TRUE(has("gpt-oss-120b-like\t16384\t-\t3.12")) << outcome.text;
}

TEST_F(PlotBench, RefusesWhatItCannotDraw) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("--format fp8 x").exit_code, 2);
  EXPECT_EQ(run(folder.file("none.json")).exit_code, 4);
  EXPECT_EQ(run(FOURFOLD_SOURCE_DIR "/bench/results/peer/marlin_h200.json").exit_code, 4);
  EXPECT_EQ(run(file("empty.json", {})).exit_code, 4);
  EXPECT_EQ(run(file("odd.json", {Json{{"shape", "Qwen3-235B"}}})).exit_code, 4);
  EXPECT_EQ(run(file("int4.json", {row("Qwen3-235B", 1, 2, "int4")}) + " --format int4 --text").exit_code, 4)
      << "groups of 32, the peer's are of 128";
  EXPECT_EQ(run("--help").exit_code, 0);
}

TEST(PeerFigures, HaveTheSourceAndAgreeWithTheirOwnFloors) {
  const Json peer = Json::parse(support::read_bytes(FOURFOLD_SOURCE_DIR "/bench/results/peer/marlin_h200.json"));
  EXPECT_NE(peer["source"].get<std::string>().find("Marlin"), std::string::npos);
  ASSERT_EQ(peer["rows"].size(), 4u * 14 * 3);
  for (const Json& figures : peer["rows"]) {
    const double ratio = figures["layer_us"].get<double>() / figures["floor_us"].get<double>();
    EXPECT_NEAR(ratio / figures["ratio"].get<double>(), 1, 0.012) << figures;  // both are rounded to three digits
  }
}

}  // namespace
}  // namespace fourfold::lint
