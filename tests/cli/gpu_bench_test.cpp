// bench moe on a GPU, with the stand-in driver: the report and its keys, every mode, exit codes, what is refused.
#include "stand_in_gpu.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;

const std::string kProblem = "t4,40 k2 e8 h128 i64";

/// Kernels come from a pack, each takes five microseconds, the management library is there.
struct GpuBench : StandInGpu {
  Variable packs{"FOURFOLD_KERNEL_DIR", folder.file("")};
  Variable off{"FOURFOLD_NO_DISK_CACHE", "1"};
  Variable launch{"STAND_IN_LAUNCH_US", "5"};
  void SetUp() override {
    StandInGpu::SetUp();
    fs::create_symlink(FOURFOLD_BINARY_DIR "/libfourfold_stand_in_cuda.so", folder.file("libnvidia-ml.so.1"));
    write_stand_in_pack(folder.file("sm_90a.pack"));
  }
  static Outcome bench(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "moe"});
    arguments.insert(arguments.end(), {"--device", "cuda:0", "--reps", "7", "--warmup", "1", "--pause", "0"});
    return run(arguments);
  }
  /// A report in a file, its layer times multiplied.
  std::string report_file(const Json& report, double factor) const {
    Json changed = report;
    for (Json& row : changed["rows"])
      for (const char* key : {"median_us", "low_us", "high_us"})
        row["layer"][key] = row["layer"][key].get<double>() * factor;
    const std::string file = folder.file("report.json");
    std::ofstream(file) << changed.dump();
    return file;
  }
};

TEST_F(GpuBench, HasTheDocumentedKeys) {
  const Outcome outcome = bench({kProblem, "--floor-bandwidth", "4.3", "--floor-tflops", "794", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), (Keys{"kind", "version", "commit", "dirty", "device", "arch", "multiprocessors", "driver",
                              "protocol", "limits", "fingerprint", "rows", "failed"}));
  EXPECT_EQ(outcome.err.rfind("fourfold ", 0), 0u) << outcome.err;
  const Json& fingerprint = json["fingerprint"];
  EXPECT_EQ(fingerprint["what"], "2 cases");
  EXPECT_EQ(fingerprint["device"], "Stand-in GPU 0 (sm_90a), " + json["multiprocessors"].dump() + " SMs");
  EXPECT_EQ(fingerprint["capacity"], 40);
  EXPECT_EQ(fingerprint["kernels"]["from_pack"], fingerprint["kernels"]["count"]);
  EXPECT_GT(fingerprint["kernels"]["count"], 2);
  EXPECT_EQ(fingerprint["arena_bytes"], json["rows"][1]["workspace_bytes"]);
  EXPECT_EQ(json["kind"], "bench_moe");
  EXPECT_EQ(json["device"], "Stand-in GPU 0");
  EXPECT_EQ(json["commit"].get<std::string>().find("dirty"), std::string::npos);
  EXPECT_TRUE(json["dirty"].is_boolean());
  EXPECT_EQ(keys(json["protocol"]), (Keys{"replays", "warm_up", "pause_ms", "rotation"}));
  EXPECT_EQ(json["protocol"]["replays"], 7);
  EXPECT_EQ(keys(json["limits"]), (Keys{"tb_per_s", "tflop_per_s"}));
  ASSERT_EQ(json["rows"].size(), 2u);
  for (const Json& row : json["rows"]) {
    EXPECT_EQ(keys(row), (Keys{"problem",     "shape",           "tokens",           "format",          "routing",
                               "capacity",    "slices",          "gate_up_shape",    "down_shape",      "layer",
                               "stages",      "floor_us",        "floor_kind",       "ratio",           "tb_per_s",
                               "tflop_per_s", "experts_hit",     "weight_bytes_hit", "workspace_bytes", "output_hash",
                               "weight_sets", "calls_per_graph", "kernels",          "clocks"}));
    EXPECT_EQ(keys(row["layer"]), (Keys{"median_us", "low_us", "high_us", "p10_us", "p90_us"}));
    EXPECT_EQ(keys(row["stages"]), (Keys{"routing_us", "gate_up_us", "down_us"}));
    EXPECT_EQ(keys(row["clocks"]),
              (Keys{"samples", "sm_mhz_median", "sm_mhz_p05", "power_w_median", "throttle", "throttled_share"}));
    const double layer = row["layer"]["median_us"].get<double>();
    EXPECT_NEAR(layer, 15, 1e-3);
    EXPECT_NEAR(row["ratio"].get<double>() * row["floor_us"].get<double>(), layer, 1e-9 * layer);
    EXPECT_GT(row["floor_us"].get<double>(), 0);
  }
  EXPECT_EQ(json["rows"][1]["problem"], "t40 k2 e8 h128 i64 nvfp4 bf16 silu");
  EXPECT_NE(outcome.err.find("[2/2,"), std::string::npos) << "progress: " << outcome.err;
}

TEST_F(GpuBench, WithoutLimitsThereIsNoRatio) {
  const Outcome outcome = bench({"t4 k2 e8 h128 i64", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_TRUE(json["rows"][0]["ratio"].is_null());
  EXPECT_NE(outcome.err.find("--floor-bandwidth"), std::string::npos) << outcome.err;
}

TEST_F(GpuBench, SpeaksInTablesToo) {
  const Outcome outcome = bench({kProblem, "t4 k2 e8 h128 i64 mxfp4", "--routing", "zipf"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"Stand-in GPU 0 (sm_90a)", "k2 e8 h128 i64 nvfp4 bf16 silu, zipf routing",
                           "k2 e8 h128 i64 mxfp4 bf16 silu, zipf routing", "gate_up", "1935*"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
}

TEST_F(GpuBench, ASuiteIsFourShapesTimesItsTokens) {
  // Small enough for a host that plays the device: words of the text replace those of the suite.
  const Outcome outcome = bench({"t2,3 e8 h128 i64 int4 g64", "--suite", "decode", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json rows = only_object(outcome)["rows"];
  ASSERT_EQ(rows.size(), 8u);
  Keys shapes;
  for (const Json& row : rows) {
    shapes.insert(row["shape"].get<std::string>());
    EXPECT_EQ(row["format"], "int4");
  }
  EXPECT_EQ(shapes, (Keys{"GLM-5.2 TP4", "Qwen3-30B-A3B", "Qwen3-235B", "gpt-oss-120b-like"}));
  EXPECT_EQ(rows[6]["problem"], "t2 k4 e8 h128 i64 int4 g64 bf16 silu");
}

TEST_F(GpuBench, CapacitiesAreRowsOfTheirOwn) {
  const Outcome outcome = bench({"t40 k2 e8 h128 i64", "--capacity", "40,16", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json rows = only_object(outcome)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["slices"], 1);
  EXPECT_EQ(rows[1]["slices"], 3);
  EXPECT_EQ(rows[1]["capacity"], 16);
  EXPECT_LT(rows[1]["workspace_bytes"].get<int>(), rows[0]["workspace_bytes"].get<int>());
}

// The sweep of the planner takes the file as it is written.
TEST_F(GpuBench, ItsCapacitiesAreTheMeasuredColumnOfASweep) {
  const std::string problem = "t40 k2 e8 h128 i64";
  const Outcome outcome = bench({problem, "t40 k2 e8 h128 i96", "--capacity", "40,16", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string file = folder.file("capacities.json");
  std::ofstream(file) << outcome.out;
  const Outcome swept =
      run({"plan", problem, "--device", "h200", "--sweep", "capacity=16,24,40", "--bench", file, "--json"});
  ASSERT_EQ(swept.exit_code, 0) << swept.err;
  const Json rows = only_object(swept)["sweep"]["rows"], measured = only_object(outcome)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["measured_ms"].get<double>(), measured[1]["layer"]["median_us"].get<double>() / 1000);
  EXPECT_TRUE(rows[1]["measured_ms"].is_null()) << "24 was not measured";
  EXPECT_EQ(rows[2]["measured_ms"].get<double>(), measured[0]["layer"]["median_us"].get<double>() / 1000);
  EXPECT_GT(rows[0]["measured_ms"], rows[2]["measured_ms"]) << "three slices";
  const Outcome text = run({"plan", problem, "--device", "h200", "--sweep", "capacity=40", "--bench", file});
  EXPECT_NE(text.out.find("0.015"), std::string::npos) << text.out;
}

TEST_F(GpuBench, ComparesWithAReport) {
  const Json report = only_object(bench({kProblem, "--json"}));
  ASSERT_EQ(report["rows"].size(), 2u);
  struct Row {
    double factor;
    int exit_code;
    const char* verdict;
  };
  for (const Row& row : {Row{1, 0, "no difference shown"}, Row{0.8, 6, "slower"}, Row{1.3, 0, "faster"}}) {
    const std::string file = report_file(report, row.factor);
    const Outcome outcome = bench({kProblem, "--compare", file, "--json"});
    EXPECT_EQ(outcome.exit_code, row.exit_code) << outcome.err;
    const Json json = only_object(outcome);
    ASSERT_EQ(json["comparison"]["rows"].size(), 2u);
    EXPECT_EQ(keys(json["comparison"]), (Keys{"with", "old_commit", "slower", "faster", "same", "rows"}));
    for (const Json& compared : json["comparison"]["rows"]) EXPECT_EQ(compared["verdict"], row.verdict);
    EXPECT_NE(bench({kProblem, "--compare", file}).out.find(row.verdict), std::string::npos);
  }
  // 1.5 % more is a regression unless the user says that this much is noise.
  const std::string file = report_file(report, 1 / 1.015);
  EXPECT_EQ(bench({kProblem, "--compare", file}).exit_code, 6);
  EXPECT_EQ(bench({kProblem, "--compare", file, "--noise", "2"}).exit_code, 0);
  EXPECT_EQ(bench({"t9 k2 e8 h128 i64", "--compare", file}).exit_code, 4) << "no row in common";
}

TEST_F(GpuBench, RefusesReportsThatAreNone) {
  Json report = only_object(bench({"t4 k2 e8 h128 i64", "--json"}));
  const std::string file = folder.file("report.json");
  const auto compare = [&](const std::string& text) {
    std::ofstream(file) << text;
    return bench({"t4 k2 e8 h128 i64", "--compare", file});
  };
  EXPECT_EQ(bench({"t4 k2 e8 h128 i64", "--compare", folder.file("none.json")}).exit_code, 4);
  EXPECT_EQ(compare("").exit_code, 4);
  EXPECT_EQ(compare("[]").exit_code, 4);
  EXPECT_EQ(compare("{}").exit_code, 4);
  EXPECT_EQ(compare("{\"kind\": \"bench_moe\"}").exit_code, 4);
  EXPECT_EQ(compare("{\"kind\": \"bench_moe\", \"device\": \"x\", \"rows\": [{\"tokens\": 1}]}").exit_code, 4);
  report["rows"][0]["layer"]["median_us"] = nullptr;
  EXPECT_EQ(compare(report.dump()).exit_code, 4);
  report["rows"][0]["layer"]["median_us"] = 1;
  report["device"] = "NVIDIA H200";
  const Outcome other = compare(report.dump());
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("NVIDIA H200"), std::string::npos) << other.err;
}

TEST_F(GpuBench, ComparesTwoSidesInTurn) {
  const Outcome slower = bench({"t40 k2 e8 h128 i64", "--ab", "", "capacity=20", "--json"});
  EXPECT_EQ(slower.exit_code, 6) << slower.err;
  const Json pair = only_object(slower)["ab"][0];
  EXPECT_EQ(keys(pair),
            (Keys{"problem", "shape", "tokens", "a", "b", "difference", "low", "high", "verdict", "clocks"}));
  EXPECT_EQ(pair["verdict"], "b is slower");
  EXPECT_NEAR(pair["difference"].get<double>(), 1, 1e-6);
  const Outcome same = bench({"t4 k2 e8 h128 i64", "--ab", "routing=zipf", "gate_up=2x1x3 mxfp4"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_NE(same.out.find("no difference shown"), std::string::npos) << same.out;
  for (const char* words : {"gate_up=2x1", "routing=skewed", "capacity=0", "capacity=4x", "nvfp5", "t1,2"}) {
    const Outcome refused = bench({"t4 k2 e8 h128 i64", "--ab", "", words});
    EXPECT_EQ(refused.exit_code, 2) << words << ": " << refused.err;
  }
}

TEST_F(GpuBench, TimesEveryVariant) {
  const Outcome outcome = bench({"t4 k2 e8 h128 i64", "--variants", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json list = only_object(outcome)["variants"][0]["variants"];
  ASSERT_GE(list.size(), 8u);
  for (const Json& variant : list)
    EXPECT_EQ(keys(variant), (Keys{"stage", "shape", "kernel", "time", "output_hash", "chosen", "best"}));
  const Outcome text = bench({"t4 k2 e8 h128 i64", "--variants"});
  EXPECT_NE(text.out.find("best"), std::string::npos) << text.out;
}

TEST_F(GpuBench, ACaseThatFailsLeavesTheOthers) {
  const Outcome outcome = bench({"t4 k2 e8 h128 i64", "t4 k2 e8 h128 i64 f32", "--json"});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(json["rows"].size(), 1u);
  ASSERT_EQ(json["failed"].size(), 1u);
  EXPECT_EQ(keys(json["failed"][0]), (Keys{"problem", "code", "text"}));
  EXPECT_EQ(json["failed"][0]["problem"], "t4 k2 e8 h128 i64 nvfp4 f32 silu");
  EXPECT_EQ(json["failed"][0]["code"], 3);
  EXPECT_NE(bench({"t4 k2 e8 h128 i64", "t4 k2 e8 h128 i64 f32"}).out.find("F32"), std::string::npos);
}

TEST_F(GpuBench, RefusesWhatItCannotMeasure) {
  const std::vector<std::pair<std::vector<std::string>, int>> calls = {
      {{}, 2},
      {{"t0 k2 e8 h128 i64"}, 2},
      {{"t4 k2 e8 h128"}, 2},
      {{"t4 k2 e8 h128 i64 f32"}, 3},
      {{"t4 k2 e8 h128 i64 @h200", "--capacity", "0"}, 2},
      {{"t4 k2 e8 h128 i64 @cpu"}, 2},
      {{"t4 k2 e8 h128 i64", "--threads", "2"}, 2},
      {{"t4 k2 e8 h128 i64", "--calls", "20"}, 2},
      {{"t4 k2 e8 h128 i64", "--routing", "skewed"}, 2},
      {{"t4 k2 e8 h128 i64", "--suite", "training"}, 2},
      {{"t1", "t2", "--suite", "decode"}, 2},
      {{"t4 k2 e8 h128 i64", "--variants", "--ab", "", "invariant"}, 2},
      {{"t4 k2 e8 h128 i64", "--noise", "2"}, 2},
  };
  for (const auto& [arguments, code] : calls) {
    const Outcome outcome = bench(arguments);
    EXPECT_EQ(outcome.exit_code, code) << testing::PrintToString(arguments) << outcome.err;
    EXPECT_NE(outcome.err, "");
  }
  EXPECT_EQ(run({"bench", "moe", "t4 k2 e8 h128 i64", "--device", "cuda:7"}).exit_code, 7);
  for (const char* option : {"--suite=decode", "--reps=40", "--capacity=4", "--routing=zipf", "--variants"}) {
    const Outcome outcome = run({"bench", "moe", "t4 k2 e8 h128 i64", option});
    EXPECT_EQ(outcome.exit_code, 2) << option;
    EXPECT_NE(outcome.err.find("--device cuda:0"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace fourfold::cli_test
