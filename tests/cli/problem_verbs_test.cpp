// plan, bench moe and doctor: their JSON objects and what must hold between the numbers.
#include "program.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;

TEST(Plan, HasTheDocumentedKeysAndAnArenaThatFits) {
  const Outcome outcome = run({"plan", "t1,16,300 k4 e16 h256 i96 nvfp4 bf16 silu", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), (Keys{"problem",
                              "device",
                              "refused",
                              "workspace_bytes",
                              "weight_bytes",
                              "steps",
                              "segments",
                              "bands",
                              "kernels",
                              "unreachable",
                              "declined",
                              "expert_bytes",
                              "layers",
                              "expert_total_bytes",
                              "memory_short_bytes",
                              "model",
                              "kv",
                              "pool",
                              "graph",
                              "ranks",
                              "reference",
                              "notes"}));
  ASSERT_GT(json["segments"].size(), 0u);
  for (const Json& segment : json["segments"]) {
    EXPECT_EQ(keys(segment),
              (Keys{"name", "offset", "bytes", "kv_tokens", "first_step", "last_step", "formula", "numbers"}));
    EXPECT_EQ(segment["offset"].get<std::uint64_t>() % 256, 0u) << segment;
    EXPECT_LE(segment["offset"].get<std::uint64_t>() + segment["bytes"].get<std::uint64_t>(),
              json["workspace_bytes"].get<std::uint64_t>())
        << segment;
  }
}

TEST(Plan, HasBandsWithoutAGap) {
  const Json json = only_object(run({"plan", "t1,16,300 k4 e16 h256 i96 nvfp4 bf16 silu", "--json"}));
  std::int64_t next = 1;
  ASSERT_GT(json["bands"].size(), 0u);
  for (const Json& band : json["bands"]) {
    EXPECT_EQ(keys(band), (Keys{"min_tokens", "max_tokens", "token_tile", "column_tile", "kernels"}));
    EXPECT_EQ(band["min_tokens"], next);
    EXPECT_GT(band["kernels"].size(), 0u);
    next = band["max_tokens"].get<std::int64_t>() + 1;
  }
  EXPECT_EQ(next, 301);
}

TEST(Plan, SaysTheExactBytesInWordsToo) {
  const Json json = only_object(run({"plan", "t64 k4 e16 h256 i96", "--json"}));
  std::string digits = std::to_string(json["workspace_bytes"].get<std::uint64_t>());
  for (std::size_t place = digits.size(); place > 3;) digits.insert(place -= 3, 1, ',');
  const Outcome outcome = run({"plan", "t64 k4 e16 h256 i96"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("workspace: " + digits + " bytes"), std::string::npos) << outcome.out;
}

TEST(Plan, TakesTheDeviceFromTheProblem) {
  for (const char* problem : {"t4 k2 e4 h64 i64 @h200", "t4 k2 e4 h64 i64 @sm90", "t4 k2 e4 h64 i64 @sm_90a"}) {
    const Outcome outcome = run({"plan", problem});
    EXPECT_EQ(outcome.exit_code, 0) << problem << ": " << outcome.err;
    EXPECT_NE(outcome.out.find("gate_up_tiles<"), std::string::npos) << problem;
  }
  EXPECT_NE(run({"plan", "t64 k8 e160 h6144 i512 nvfp4 bf16 silu", "--device", "h200"}).out.find("h200 (sm_90a)"),
            std::string::npos);
  EXPECT_EQ(run({"plan", "t4 k2 e4 h64 i64 @cpu"}).exit_code, 0);
}

TEST(Bench, HasTheDocumentedKeysAndRepeatsItsHash) {
  const std::vector<std::string> arguments = {
      "bench", "moe", "t1,3 k2 e8 h128 i64 nvfp4 bf16 silu", "--calls", "15", "--layers", "2", "--json"};
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), (Keys{"kind", "rows", "probes", "problem", "device", "isa", "threads", "commit", "dirty",
                              "fingerprint"}));
  EXPECT_EQ(keys(json["probes"]), (Keys{"read_gb_per_s", "bf16_gflop_per_s", "f32_gflop_per_s"}));
  EXPECT_GT(json["probes"]["read_gb_per_s"].get<double>(), 0);
  EXPECT_GT(json["probes"]["bf16_gflop_per_s"].get<double>(), 0);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["tokens"], 1);
  EXPECT_EQ(json["rows"][1]["tokens"], 3);
  for (const Json& row : json["rows"]) {
    EXPECT_EQ(keys(row), (Keys{"tokens", "ms_p10", "ms_median", "ms_p90", "weight_gb_per_s", "gflop_per_s", "floor_ms",
                               "over_floor", "workspace_bytes", "output_hash"}));
    EXPECT_GT(row["ms_p10"].get<double>(), 0);
    EXPECT_LE(row["ms_p10"].get<double>(), row["ms_median"].get<double>());
    EXPECT_LE(row["ms_median"].get<double>(), row["ms_p90"].get<double>());
    EXPECT_GT(row["floor_ms"].get<double>(), 0);
    EXPECT_NEAR(row["over_floor"].get<double>() * row["floor_ms"].get<double>(), row["ms_median"].get<double>(),
                1e-9 * row["ms_median"].get<double>());
  }
  const Json again = only_object(run(arguments));
  ASSERT_EQ(again["rows"].size(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(json["rows"][i]["output_hash"], again["rows"][i]["output_hash"]);
  EXPECT_NE(json["rows"][0]["output_hash"], json["rows"][1]["output_hash"]);
}

TEST(Doctor, HasTheDocumentedKeys) {
  const Outcome outcome = run({"doctor", "--quick", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json),
            (Keys{"version", "commit", "cpu", "memory", "probes", "gpu", "nvrtc", "packs", "cache", "settings"}));
  EXPECT_EQ(keys(json["gpu"]), (Keys{"driver_version", "driver_path", "usable", "reason", "devices"}));
  EXPECT_NE(json["gpu"]["usable"].get<bool>(), json["gpu"]["devices"].empty());
  EXPECT_EQ(json["gpu"]["usable"].get<bool>(), json["gpu"]["reason"] == "");
  EXPECT_EQ(keys(json["nvrtc"]), (Keys{"version", "path", "reason"}));
  EXPECT_EQ(json["nvrtc"]["version"] == "", json["nvrtc"]["reason"] != "");
  EXPECT_EQ(keys(json["cache"]), (Keys{"folder", "problem", "entries", "bytes", "max_bytes", "partial_files"}));
  ASSERT_FALSE(json["packs"].empty());
  for (const Json& pack : json["packs"]) {
    EXPECT_EQ(keys(pack), (Keys{"architecture", "path", "refused", "reason"}));
    EXPECT_EQ(pack["path"] == "", pack["reason"] != "");
  }
  EXPECT_GE(json["cpu"]["threads"].get<int>(), 1);
  EXPECT_GT(json["memory"]["total_bytes"].get<std::uint64_t>(), 0u);
  EXPECT_TRUE(json["probes"].is_null());
}

TEST(Doctor, SpeaksPlainly) {
  const Outcome outcome = run({"doctor", "--quick"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* word :
       {"CPU", "kernels", "threads", "memory", "driver", "GPU", "NVRTC", "pack", "cache dir", "settings"})
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word << "\n" << outcome.out;
}

}  // namespace
}  // namespace fourfold::cli_test
