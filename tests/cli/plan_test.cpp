// plan as an operator asks it: comparisons, sweeps, what fits, ranks, models, differences, configurations.
#include <cmath>
#include <map>

#include "program.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr const char* kGlm = "t64 k8 e160 h6144 i512 nvfp4 bf16 silu";

Json plan_json(Arguments arguments, int exit_code = 0) {
  arguments.insert(arguments.begin(), "plan");
  arguments.push_back("--json");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  return only_object(outcome);
}

std::string write(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  const std::string path = folder.file(name);
  std::ofstream(path) << text;
  return path;
}

TEST(PlanCompare, PutsTheirBillsBesideOurs) {
  const Json json = plan_json({kGlm, "--device", "rtx-pro-6000", "--compare", "b12x,b12x:block=64,marlin,flashinfer"});
  EXPECT_EQ(json["reference"]["b12x"]["total_bytes"], 31'491'908);
  EXPECT_EQ(json["reference"]["b12x"]["core_bytes"], 31'465'284);
  EXPECT_EQ(json["reference"]["b12x"]["blocks"], Json::array({8}));
  EXPECT_EQ(json["reference"]["b12x:block=64"]["total_bytes"], 99'553'972);
  EXPECT_GT(json["reference"]["flashinfer"]["retained_bytes"], json["reference"]["flashinfer"]["total_bytes"]);
  for (const auto& [system, bill] : json["reference"].items()) {
    EXPECT_LT(json["workspace_bytes"].get<std::uint64_t>(), bill["total_bytes"].get<std::uint64_t>()) << system;
    EXPECT_TRUE(bill["refused"].is_null()) << system;
    ASSERT_GT(bill["segments"].size(), 1u);
    for (const Json& segment : bill["segments"])
      EXPECT_EQ(keys(segment), (Keys{"name", "bytes", "formula", "numbers"})) << system;
  }
}

TEST(PlanCompare, MarlinAsOneCallAndAsProvisioned) {
  const Json json = plan_json({kGlm, "--device", "h200", "--compare", "marlin"});
  EXPECT_EQ(json["reference"]["marlin"]["total_bytes"], 15'476'600);
  EXPECT_EQ(json["reference"]["marlin"]["provisioned_bytes"], 21'243'768);
}

TEST(PlanCompare, OverridesOfTheDeviceCount) {
  const Json json = plan_json({kGlm, "--device", "h200", "--sms", "188", "--smem", "100K", "--compare", "b12x"});
  EXPECT_EQ(json["reference"]["b12x"]["total_bytes"], 31'491'908);
  EXPECT_EQ(json["device"]["multiprocessors"], 188);
  EXPECT_EQ(json["device"]["shared_memory_bytes"], 102'400);
}

TEST(Plan, AnArchitectureIsNamedWithOrWithoutItsSuffix) {
  const Json json = plan_json({kGlm, "--device", "h200", "--arch", "sm120"});
  EXPECT_EQ(json["device"]["arch"], "sm_120a");
  EXPECT_EQ(json["workspace_bytes"], plan_json({kGlm, "--device", "h200", "--arch", "sm_120a"})["workspace_bytes"]);
}

TEST(PlanCompare, ARefusalIsAnAnswer) {
  const Json json = plan_json({"t4 k2 e4 h128 i128 mxfp4", "--device", "h200", "--compare", "flashinfer"});
  EXPECT_NE(json["reference"]["flashinfer"]["refused"].get<std::string>().find("NVFP4"), std::string::npos);
  EXPECT_TRUE(json["reference"]["flashinfer"]["total_bytes"].is_null());
}

TEST(PlanCompare, SaysItInWords) {
  const Outcome outcome = run({"plan", kGlm, "--device", "rtx-pro-6000", "--compare", "b12x"});
  for (const char* part : {"31,491,908", "intermediate_cache13", "512 x max(1024, 6144) x 2", "188 SMs"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
}

TEST(Plan, Exl3IsPricedAndRefused) {
  const Json json = plan_json({"t3072 k8 e160 h6144 i512 exl3 b3", "--device", "rtx-pro-6000"}, 3);
  EXPECT_TRUE(json["workspace_bytes"].is_null());
  EXPECT_NE(json["refused"].get<std::string>().find("exl3"), std::string::npos);
  EXPECT_EQ(json["expert_bytes"], 160ll * 3 * 6144 * 512 * 3 / 8 + 160ll * 3 * (6144 + 512) * 2);
  EXPECT_EQ(json["reference"]["b12x-trellis"]["total_bytes"], 1'106'622'184);
}

TEST(Plan, NumbersStandBesideFormulas) {
  const Json json = plan_json({kGlm, "--device", "h200"});
  bool found = false;
  for (const Json& segment : json["segments"])
    found = found || segment["numbers"].get<std::string>().find("512 * 512 * 2") != std::string::npos;
  EXPECT_TRUE(found) << json["segments"];
}

TEST(Plan, ExplainShowsWhoDeclined) {
  const Outcome plain = run({"plan", "t4 k2 e4 h64 i64", "--isa", "avx2"});
  const Outcome explained = run({"plan", "t4 k2 e4 h64 i64", "--isa", "avx2", "--explain"});
  EXPECT_EQ(plain.out.find("avx2 is wider"), std::string::npos);
  EXPECT_NE(explained.out.find("avx2 is wider"), std::string::npos) << explained.out;
}

TEST(Plan, SaysWhatALargerCapacityWouldReach) {
  const Json json = plan_json({"t2 k2 e4 h64 i64", "--isa", "avx2", "--threads", "2"});
  ASSERT_GT(json["unreachable"].size(), 0u);
  for (const Json& kernel : json["unreachable"]) {
    EXPECT_GT(kernel["from_tokens"], 2);
    EXPECT_GE(kernel["workspace_bytes"], json["workspace_bytes"]);
  }
}

TEST(Plan, PricesBytesInKvTokens) {
  const Json json = plan_json({kGlm, "--device", "h200", "--kv-bytes-per-token", "1000"});
  EXPECT_EQ(json["kv"]["bytes_per_token"], 1000.0);
  EXPECT_EQ(json["kv"]["workspace_tokens"], json["workspace_bytes"].get<std::int64_t>() / 1000);
  // 368 bytes a layer, 78 layers, two ranks that share a token.
  const Json shared =
      plan_json({kGlm, "--device", "h200", "--kv-record-bytes", "368", "--kv-layers", "78", "--dcp", "2"});
  EXPECT_EQ(shared["kv"]["bytes_per_token"], 368.0 * 78 / 2);
}

TEST(Plan, EveryReservationIsPricedInKvTokens) {
  const Json json =
      plan_json({kGlm, "--device", "h200", "--kv-bytes-per-token", "1000", "--capture", "1,64", "--tp", "2"});
  const auto tokens = [](const Json& bytes) { return bytes.get<std::int64_t>() / 1000; };
  EXPECT_EQ(json["kv"]["weight_tokens"], tokens(json["expert_total_bytes"]));
  EXPECT_EQ(json["graph"]["kv_tokens"], tokens(json["graph"]["pool_bytes"]));
  for (const Json& segment : json["segments"]) EXPECT_EQ(segment["kv_tokens"], tokens(segment["bytes"]));
  ASSERT_GT(json["unreachable"].size(), 0u);
  for (const Json& kernel : json["unreachable"])
    EXPECT_EQ(kernel["kv_tokens"],
              (kernel["workspace_bytes"].get<std::int64_t>() - json["workspace_bytes"].get<std::int64_t>()) / 1000);
}

// A graph of a size has every launch of its band in every layer: 3 up to the sums' limit, then 2 and 2 a panel.
TEST(Plan, GraphsAreCountedByLaunches) {
  const Json json = plan_json({"--model", kSource + "/examples/glm-5.2", "--format", "nvfp4", "--max-tokens", "3072",
                               "--device", "h200", "--capture", "1,64,3072"});
  EXPECT_EQ(json["graph"]["launches"], Json::array({3, 3, 2 + 2 * (6144 / 384)}));
  EXPECT_EQ(json["graph"]["nodes"], 75 * (3 + 3 + 2 + 2 * (6144 / 384)));
  const Outcome text = run({"plan", kGlm, "--device", "h200", "--capture", "1,64", "--explain"});
  EXPECT_NE(text.out.find("assumption about the engine"), std::string::npos) << text.out;
}

TEST(Plan, ExplainsTheShapesThatAGpuPlanLeavesOut) {
  const auto reason = [](const char* problem, const char* device, const std::string& shape) {
    const Json json = plan_json({problem, "--device", device});
    for (const Json& entry : json["declined"])
      if (entry["candidate"] == shape) return entry["reason"].get<std::string>();
    return "no such candidate: " + shape;
  };
  const auto says = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(reason(kGlm, "h200", "gate_up_tiles 4x4x3"), "no band up to max_tokens = 64 has tiles of 32 tokens");
  says(reason(kGlm, "h200", "down_rows 2x4x3"), "sums in shared memory serve every count up to 64");
  says(reason(kGlm, "h200", "gate_up_tiles 2x1x3"), "a faster one");
  says(reason(kGlm, "rtx-pro-6000", "gate_up_tiles 4x4x3"), "gives a block 101376");
  says(reason("t64 k8 e128 h2048 i768", "h200", "down_sums 3x1x4"), "some of the 132 multiprocessors without one");
}

TEST(PlanRanks, UnevenSharesMaximumAndSum) {
  const Json json =
      plan_json({"t64 k6 e127 h2688 i1856 nvfp4 bf16 relu2", "--device", "h200", "--tp", "4", "--ep", "2"});
  const Json& ranks = json["ranks"];
  ASSERT_EQ(ranks["each"].size(), 8u);
  std::uint64_t largest = 0, sum = 0, columns = 0;
  for (const Json& rank : ranks["each"]) {
    const auto bytes = rank["workspace_bytes"].get<std::uint64_t>();
    largest = std::max(largest, bytes);
    sum += bytes;
    if (rank["ep_rank"] == 0) columns += rank["intermediate"].get<std::uint64_t>();
  }
  EXPECT_EQ(columns, 1856u);
  EXPECT_EQ(ranks["each"][0]["experts"], 64);
  EXPECT_EQ(ranks["each"][4]["experts"], 63);
  EXPECT_EQ(ranks["max_workspace_bytes"], largest);
  EXPECT_EQ(ranks["sum_workspace_bytes"], sum);
  EXPECT_EQ(json["workspace_bytes"], largest);
}

TEST(PlanSweep, CostsAndBuys) {
  const Json json =
      plan_json({kGlm, "--device", "h200", "--sweep", "capacity=512,1024,1536,3072", "--kv-bytes-per-token", "14768"});
  const Json& rows = json["sweep"]["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(json["sweep"]["chunk_tokens"], 3072);
  const std::vector<int> slices = {6, 3, 2, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i]["slices"], slices[i]);
    EXPECT_EQ(rows[i]["bytes_gained"].get<std::uint64_t>(),
              rows[3]["workspace_bytes"].get<std::uint64_t>() - rows[i]["workspace_bytes"].get<std::uint64_t>());
    EXPECT_EQ(rows[i]["kv_tokens_gained"], rows[i]["bytes_gained"].get<std::uint64_t>() / 14768);
    EXPECT_TRUE(rows[i]["measured_ms"].is_null());
    if (i > 0) {
      EXPECT_LT(rows[i]["extra_weight_bytes"], rows[i - 1]["extra_weight_bytes"]);
    }
  }
  EXPECT_EQ(rows[3]["extra_weight_bytes"], 0.0);
  // At 512 tokens and more nearly every expert is read by every slice.
  EXPECT_NEAR(rows[0]["extra_weight_bytes"].get<double>() / json["expert_bytes"].get<double>(), 5, 0.001);
}

TEST(PlanSweep, TakesMeasuredTimesFromABenchFile) {
  const TemporaryFolder folder;
  const std::string own = write(folder, "own.json",
                                R"({"rows": [{"tokens": 3072, "capacity": 512, "layer": {"median_us": 1500}},
                                             {"tokens": 3072, "capacity": 512, "ms_median": 7,
                                              "problem": "t3072 k8 e160 h6144 i1024 nvfp4 bf16 silu"},
                                             {"tokens": 64, "capacity": 3072, "ms_median": 9}]})");
  const std::string shared =
      write(folder, "shared.json", R"({"capacity": 3072, "rows": [{"tokens": 3072, "ms_median": 1.25}]})");
  const Json json =
      plan_json({kGlm, "--device", "h200", "--sweep", "capacity=512,3072", "--bench", own + "," + shared});
  EXPECT_EQ(json["sweep"]["rows"][0]["measured_ms"], 1.5);
  EXPECT_EQ(json["sweep"]["rows"][1]["measured_ms"], 1.25);
  const std::string none = write(folder, "none.json", R"({"rows": [{"tokens": 3072, "ms_median": 1}]})");
  const Outcome refused = run({"plan", kGlm, "--device", "h200", "--sweep", "capacity=512", "--bench", none});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_NE(refused.err.find("capacity"), std::string::npos);
}

// What operators published for their server's arena (core, block 64): 1,054.14 MiB at 3,072 rows, 414.07 at 1,024.
TEST(PlanSweep, AsksTheOtherSystemsToo) {
  const Json json = plan_json({kGlm, "--device", "rtx-pro-6000", "--sweep", "capacity=1024,3072", "--compare",
                               "b12x-trellis,marlin", "--kv-bytes-per-token", "14768"});
  EXPECT_EQ(keys(json["sweep"]["reference"]), (Keys{"b12x-trellis", "marlin"}));
  const Json& rows = json["sweep"]["reference"]["b12x-trellis"]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["total_bytes"], 1'106'622'184);
  EXPECT_EQ(rows[1]["bytes_gained"], 0);
  const auto gained = 1'106'622'184 - rows[0]["total_bytes"].get<std::int64_t>();
  EXPECT_EQ(rows[0]["bytes_gained"], gained);
  EXPECT_EQ(rows[0]["kv_tokens_gained"], gained / 14768);
  EXPECT_EQ(json["sweep"]["rows"][1]["workspace_bytes"],
            plan_json({kGlm, "--device", "rtx-pro-6000", "--max-tokens", "3072"})["workspace_bytes"]);
  const Outcome text =
      run({"plan", kGlm, "--device", "rtx-pro-6000", "--sweep", "capacity=1024,3072", "--compare", "marlin"});
  EXPECT_NE(text.out.find("marlin, capacities for chunks of 3,072 tokens"), std::string::npos) << text.out;
}

// Weights that are priced and not run: the sizing stands, and so does the refusal.
TEST(PlanSweep, OfExl3IsTheReferences) {
  const Arguments exl3 = {"t3072 k8 e160 h6144 i512 exl3 b3", "--device", "rtx-pro-6000"};
  Arguments arguments = exl3;
  arguments.insert(arguments.end(), {"--sweep", "capacity=512,3072", "--fit", "500MiB"});
  const Json json = plan_json(arguments, 3);
  EXPECT_TRUE(json["sweep"]["rows"][1]["workspace_bytes"].is_null());
  EXPECT_EQ(json["sweep"]["rows"][0]["slices"], 6);
  EXPECT_EQ(json["sweep"]["reference"]["b12x-trellis"]["rows"][1]["total_bytes"], 1'106'622'184);
  EXPECT_TRUE(json["fit"]["capacity"].is_null());
  const auto capacity = json["fit"]["reference"]["b12x-trellis"]["capacity"].get<std::int64_t>();
  for (const std::int64_t tokens : {capacity, capacity + 1}) {
    Arguments at = exl3;
    at.insert(at.end(), {"--max-tokens", std::to_string(tokens)});
    const auto bytes = plan_json(at, 3)["reference"]["b12x-trellis"]["total_bytes"].get<std::int64_t>();
    EXPECT_EQ(bytes <= (500 << 20), tokens == capacity) << tokens;
  }
  arguments.insert(arguments.begin(), "plan");
  const Outcome text = run(arguments);
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_NE(text.out.find("refused: exl3"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("b12x-trellis, largest capacity"), std::string::npos) << text.out;
  // A CPU has nothing to compare with.
  EXPECT_EQ(run({"plan", "t4 k2 e4 h128 i128 exl3", "--device", "cpu", "--sweep", "capacity=4"}).exit_code, 3);
}

TEST(PlanFit, AsksTheOtherSystemsToo) {
  const Json json =
      plan_json({kGlm, "--device", "h200", "--fit", "16MiB", "--compare", "b12x,marlin,flashinfer:tile=8"});
  for (const auto& [system, fit] : json["fit"]["reference"].items()) {
    for (const Json& neighbour : fit["neighbours"]) {
      EXPECT_EQ(neighbour["fits"].get<bool>(), neighbour["total_bytes"] <= (16 << 20)) << system;
    }
    if (fit["capacity"].is_null()) continue;
    EXPECT_LT(fit["capacity"], json["fit"]["capacity"]) << system;
  }
  EXPECT_TRUE(json["fit"]["reference"]["b12x"]["capacity"].is_number());
  // A system that does not serve the problem says so; what is too small for one token is no capacity.
  const Json none =
      plan_json({"t4 k2 e4 h128 i128 mxfp4", "--device", "h200", "--fit", "4096", "--compare", "flashinfer,b12x"});
  EXPECT_NE(none["fit"]["reference"]["flashinfer"]["refused"].get<std::string>().find("NVFP4"), std::string::npos);
  EXPECT_TRUE(none["fit"]["reference"]["b12x"]["capacity"].is_null());
}

// 211 tokens with blocks of 8 need more than 218 with blocks of 16: what fits is no simple boundary.
TEST(PlanFit, IsExactWhereABillFalls) {
  const auto bytes = [](std::int64_t tokens) {
    return plan_json({"t" + std::to_string(tokens) + " k2 e59 h2048 i768", "--device", "rtx-pro-6000", "--compare",
                      "b12x-trellis"})["reference"]["b12x-trellis"]["total_bytes"]
        .get<std::int64_t>();
  };
  ASSERT_GT(bytes(211), 27'000'000);
  ASSERT_LT(bytes(218), 27'000'000);
  const Json json =
      plan_json({"t1 k2 e59 h2048 i768", "--device", "rtx-pro-6000", "--compare", "b12x-trellis", "--fit", "27000000"});
  const auto capacity = json["fit"]["reference"]["b12x-trellis"]["capacity"].get<std::int64_t>();
  EXPECT_GE(capacity, 218);
  EXPECT_LE(bytes(capacity), 27'000'000);
  EXPECT_GT(bytes(capacity + 1), 27'000'000);
  // And where only the smaller block fits.
  const std::int64_t small = bytes(100);
  const Json below = plan_json({"t1 k2 e59 h2048 i768", "--device", "rtx-pro-6000", "--compare", "b12x-trellis",
                                "--fit", std::to_string(small)});
  EXPECT_EQ(below["fit"]["reference"]["b12x-trellis"]["capacity"], 100);
}

TEST(PlanFit, IsExactWithItsNeighbours) {
  const Json json = plan_json({kGlm, "--device", "h200", "--fit", "30MiB"});
  const Json& fit = json["fit"];
  EXPECT_EQ(fit["budget_bytes"], 30 << 20);
  ASSERT_EQ(fit["neighbours"].size(), 3u);
  EXPECT_EQ(fit["neighbours"][1]["capacity"], fit["capacity"]);
  EXPECT_TRUE(fit["neighbours"][1]["fits"].get<bool>());
  EXPECT_FALSE(fit["neighbours"][2]["fits"].get<bool>());
  EXPECT_GT(fit["neighbours"][2]["workspace_bytes"], 30 << 20);
  // The plan of that capacity says the same.
  const std::string capacity = std::to_string(fit["capacity"].get<int>());
  EXPECT_EQ(plan_json({kGlm, "--device", "h200", "--max-tokens", capacity})["workspace_bytes"],
            fit["neighbours"][1]["workspace_bytes"]);
}

TEST(PlanFit, LeavesRoomForTokens) {
  const Json json = plan_json(
      {kGlm, "--device", "h200", "--fit-tokens", "262144", "--kv-bytes-per-token", "14768", "--pool", "4GiB"});
  EXPECT_EQ(json["fit"]["budget_bytes"].get<std::int64_t>(), (std::int64_t{4} << 30) - 262144 * std::int64_t{14768});
}

TEST(PlanModel, PlansTheLayerOfAConfig) {
  const Json json = plan_json({"--model", kDemo, "--max-tokens", "64", "--capture", "1,2,4", "--device", "h200"});
  const Json config = Json::parse(read_bytes(kDemo + "/config.json"));
  EXPECT_EQ(json["model"]["architecture"], "Qwen3MoeForCausalLM");
  EXPECT_EQ(json["layers"], config["num_hidden_layers"]);
  EXPECT_EQ(json["kv"]["bytes_per_token"].get<double>(), 2.0 * config["num_key_value_heads"].get<int>() *
                                                             config["head_dim"].get<int>() * 2 *
                                                             config["num_hidden_layers"].get<int>());
  EXPECT_GT(json["pool"]["bytes"].get<std::int64_t>(), 0);
  EXPECT_EQ(json["graph"]["sizes"], Json::array({1, 2, 4}));
  EXPECT_GT(json["graph"]["nodes"].get<int>(), 0);
  EXPECT_EQ(json["graph"]["pool_bytes"], 2 * 4 * config["hidden_size"].get<int>() * 2);
  // A config alone does, too.
  const Json alone = plan_json({"--model", kDemo + "/config.json", "--max-tokens", "64", "--device", "h200"});
  EXPECT_EQ(alone["workspace_bytes"], json["workspace_bytes"]);
  EXPECT_TRUE(alone["pool"].is_null());
}

// 256 experts of 2048 columns in 75 layers do not fit on four cards of 96 GB in four bits, and do in three.
TEST(PlanModel, OtherWeightsMakeAConfigAPool) {
  const std::string model = kSource + "/examples/glm-5.2";
  const Arguments arguments = {"--model",  model,          "--format",        "exl3 b3", "--tp",      "4",
                               "--device", "rtx-pro-6000", "--other-weights", "14GiB",   "--reserve", "2GiB"};
  const Json json = plan_json(arguments, 3);
  const std::int64_t pool = 96'000'000'000 - json["expert_total_bytes"].get<std::int64_t>() - (std::int64_t{16} << 30);
  EXPECT_EQ(json["pool"]["bytes"], pool);
  EXPECT_TRUE(json["pool"]["kv_tokens"].is_null()) << "there is no arena of ours";
  const double left = static_cast<double>(pool - json["reference"]["b12x-trellis"]["total_bytes"].get<std::int64_t>());
  EXPECT_EQ(json["pool"]["reference"]["b12x-trellis"],
            static_cast<std::int64_t>(left / json["kv"]["bytes_per_token"].get<double>()));
  for (const Arguments& wrong : {Arguments{"plan", kGlm, "--device", "h200", "--other-weights", "1GiB"},
                                 Arguments{"plan", "--model", model, "--pool", "4GiB", "--other-weights", "1GiB"}})
    EXPECT_EQ(run(wrong).exit_code, 2);
}

TEST(PlanModel, SaysWhatDoesNotFit) {
  const std::string model = kSource + "/examples/glm-5.2";
  const Json four = plan_json({"--model", model, "--format", "nvfp4", "--tp", "4", "--device", "rtx-pro-6000"});
  EXPECT_EQ(four["layers"], 75);
  EXPECT_EQ(four["expert_total_bytes"].get<std::int64_t>(), 75 * four["weight_bytes"].get<std::int64_t>());
  EXPECT_EQ(four["memory_short_bytes"].get<std::int64_t>(),
            four["expert_total_bytes"].get<std::int64_t>() - std::int64_t{96'000'000'000});
  const Json three = plan_json({"--model", model, "--format", "exl3 b3", "--tp", "4", "--device", "rtx-pro-6000"}, 3);
  EXPECT_EQ(three["memory_short_bytes"], 0);
  EXPECT_LT(three["expert_total_bytes"], four["expert_total_bytes"]);
}

TEST(PlanSvg, DrawsEverySegment) {
  const TemporaryFolder folder;
  const std::string path = folder.file("arena.svg");
  const Json json = plan_json({kGlm, "--device", "h200", "--svg", path});
  const std::string svg = read_bytes(path);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  for (const Json& segment : json["segments"])
    EXPECT_NE(svg.find(segment["name"].get<std::string>() + ":"), std::string::npos) << segment["name"];
}

struct Pair {
  std::string before, after;
};

Pair written_plans(const TemporaryFolder& folder, const char* before, const char* after) {
  return {write(folder, "before.json", run({"plan", before, "--device", "h200", "--json"}).out),
          write(folder, "after.json", run({"plan", after, "--device", "h200", "--json"}).out)};
}

TEST(PlanDiff, ExitsWith6WhenItGrew) {
  const TemporaryFolder folder;
  const Pair plans = written_plans(folder, "t64 k8 e160 h6144 i512", "t65 k8 e160 h6144 i512");
  const Outcome grew = run({"plan", "diff", plans.before, plans.after, "--json"});
  EXPECT_EQ(grew.exit_code, 6) << grew.err;
  const Json json = only_object(grew);
  EXPECT_EQ(keys(json), (Keys{"grew", "changed", "problem", "workspace_bytes", "weight_bytes", "segments", "kernels",
                              "bands_changed"}));
  EXPECT_TRUE(json["grew"].get<bool>());
  EXPECT_GT(json["workspace_bytes"]["change"], 0);
  EXPECT_EQ(json["weight_bytes"]["change"], 0);
  const Outcome shrank = run({"plan", "diff", plans.after, plans.before});
  EXPECT_EQ(shrank.exit_code, 0);
  EXPECT_NE(shrank.out.find("did not grow"), std::string::npos) << shrank.out;
}

TEST(PlanDiff, TheSameIsTheSame) {
  const TemporaryFolder folder;
  const Pair plans = written_plans(folder, "t64 k8 e160 h6144 i512", "t64 k8 e160 h6144 i512");
  const Outcome outcome = run({"plan", "diff", plans.before, plans.after});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("the same"), std::string::npos) << outcome.out;
}

TEST(PlanDiff, NamesKernelsThatCameAndWent) {
  const TemporaryFolder folder;
  const Pair plans = written_plans(folder, "t64 k8 e160 h6144 i512 nvfp4", "t64 k8 e160 h6144 i512 mxfp4");
  const Json json = only_object(run({"plan", "diff", plans.before, plans.after, "--json"}));
  EXPECT_GT(json["kernels"]["added"].size(), 0u);
  EXPECT_GT(json["kernels"]["removed"].size(), 0u);
}

struct Config {
  const char* text;
  const char* rule;  // empty: every rule is kept
  Json nearest;
};

TEST(PlanCheck, EveryRuleNamesTheNearestValidValue) {
  const TemporaryFolder folder;
  const std::string base = R"("problem": "t1 k8 e160 h6144 i512", "device": "h200", )";
  const Config rows[] = {
      {R"("capacity": 1024, "capture_sizes": [1, 2, 4], "max_num_batched_tokens": 1024, "max_num_seqs": 1,
          "num_speculative_tokens": 3)",
       "", nullptr},
      {R"("capacity": 64, "capture_sizes": [64, 128])", "capture_beyond_capacity", 64},
      {R"("capacity": 4096, "max_num_batched_tokens": 3072)", "capacity_above_scheduler", 3072},
      {R"("capacity": 64, "capture_sizes": [8, 16], "max_num_seqs": 8, "num_speculative_tokens": 3)",
       "window_too_small", 4},
      {R"("capacity": 64, "kv_bytes_per_token": 1000, "pool": "10M", "max_model_len": 131072)", "pool_below_context",
       nullptr}};
  for (const Config& row : rows) {
    const std::string path = write(folder, "config.json", "{" + base + row.text + "}");
    const Outcome outcome = run({"plan", "check", path, "--json"});
    const Json json = only_object(outcome);
    const bool kept = std::string(row.rule).empty();
    EXPECT_EQ(outcome.exit_code, kept ? 0 : 3) << row.text << outcome.err;
    EXPECT_EQ(json["ok"], kept);
    if (kept) continue;
    ASSERT_EQ(json["findings"].size(), 1u) << json["findings"];
    EXPECT_EQ(json["findings"][0]["rule"], row.rule);
    if (!row.nearest.is_null()) {
      EXPECT_EQ(json["findings"][0]["nearest"], row.nearest) << json["findings"];
    }
  }
}

TEST(PlanCheck, ASizeBeyondTheCapacityIsNoWindow) {
  const TemporaryFolder folder;
  const std::string path = write(folder, "config.json",
                                 R"({"problem": "t1 k8 e160 h6144 i512", "device": "h200", "capacity": 64,
                                     "capture_sizes": [16, 128], "max_num_seqs": 8, "num_speculative_tokens": 3})");
  const Json findings = only_object(run({"plan", "check", path, "--json"}))["findings"];
  ASSERT_EQ(findings.size(), 2u) << findings;
  EXPECT_EQ(findings[0]["rule"], "capture_beyond_capacity");
  EXPECT_EQ(findings[1]["rule"], "window_too_small");
  EXPECT_EQ(findings[1]["nearest"], 4);
}

// Where not even one sequence fits into the window, the window is what must change.
TEST(PlanCheck, AWindowSmallerThanOneSequence) {
  const TemporaryFolder folder;
  const auto finding = [&](const std::string& capacity) {
    const std::string path = write(folder, "config.json",
                                   R"({"problem": "t1 k8 e160 h6144 i512", "device": "h200", "capture_sizes": [2],
                                       "max_num_seqs": 8, "num_speculative_tokens": 3, "capacity": )" +
                                       capacity + "}");
    return only_object(run({"plan", "check", path, "--json"}))["findings"][0];
  };
  EXPECT_EQ(finding("64")["key"], "capture_sizes");
  EXPECT_EQ(finding("64")["nearest"], 32);
  EXPECT_EQ(finding("64")["text"].get<std::string>().find("max_num_seqs = 0"), std::string::npos);
  EXPECT_NE(finding("16")["text"].get<std::string>().find("capture 32 with a capacity as large"), std::string::npos);
}

TEST(PlanCheck, ThePoolIsFoundAsPlanFindsIt) {
  const TemporaryFolder folder;
  const std::string model = kSource + "/examples/glm-5.2/config-160-experts.json";
  const std::string path =
      write(folder, "config.json", R"({"model": ")" + model + R"(", "format": "nvfp4", "tp": 4, "dcp": 2,
              "device": "rtx-pro-6000", "capacity": 1024, "other_weights": "14GiB", "reserve": "2GiB",
              "kv_record_bytes": 368, "max_model_len": 9000000})");
  const Json json = only_object(run({"plan", "check", path, "--json"}));
  ASSERT_EQ(json["findings"].size(), 1u) << json["findings"];
  EXPECT_EQ(json["findings"][0]["rule"], "pool_below_context");
  EXPECT_EQ(json["findings"][0]["nearest"], json["plan"]["pool"]["kv_tokens"]);
}

TEST(PlanCheck, TheNearestCapacityKeepsTheLimit) {
  const TemporaryFolder folder;
  const auto check = [&](std::int64_t capacity) {
    const std::string path =
        write(folder, "config.json",
              R"({"problem": "t1 k8 e160 h6144 i512", "device": "h200", "workspace_limit": "8MiB", "capacity": )" +
                  std::to_string(capacity) + "}");
    return run({"plan", "check", path, "--json"});
  };
  const Json broken = only_object(check(100'000));
  ASSERT_EQ(broken["findings"].size(), 1u);
  EXPECT_EQ(broken["findings"][0]["rule"], "workspace_above_limit");
  const auto nearest = broken["findings"][0]["nearest"].get<std::int64_t>();
  EXPECT_EQ(check(nearest).exit_code, 0);
  EXPECT_EQ(check(nearest + 1).exit_code, 3);
}

TEST(PlanCheck, ARefusedProblemIsAFinding) {
  const TemporaryFolder folder;
  const std::string path = write(folder, "config.json", R"({"problem": "t4 k2 e4 h65 i64", "device": "h200"})");
  const Outcome outcome = run({"plan", "check", path});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.out.find("hidden = 65"), std::string::npos) << outcome.out;
}

TEST(PlanCheck, KeysAndTypesAreChecked) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> rows[] = {
      {R"({"problem": "t4 k2 e4 h64 i64", "capasity": 4})", "capasity"},
      {R"({"problem": "t4 k2 e4 h64 i64", "capacity": "many"})", "'capacity' is \"many\""},
      {R"({"problem": "t4 k2 e4 h64 i64", "capture_sizes": [0]})", "capture_sizes"},
      {R"({"problem": "t4 k2 e4 h64 i64", "capture_sizes": 4})", "a list"},
      {R"({"problem": 4})", "a text"},
      {"[]", "no JSON object"}};
  for (const auto& [text, says] : rows) {
    const Outcome outcome = run({"plan", "check", write(folder, "config.json", text)});
    EXPECT_EQ(outcome.exit_code, 4) << text;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << text << outcome.err;
  }
}

TEST(PlanCheck, TheModelIsFoundFromTheFile) {
  const TemporaryFolder folder;
  std::filesystem::copy(kDemo + "/config.json", folder.file("model.json"));
  const std::string path = write(folder, "config.json", R"({"model": "model.json", "device": "h200", "capacity": 64})");
  EXPECT_EQ(run({"plan", "check", path}).exit_code, 0);
}

}  // namespace
}  // namespace fourfold::cli_test
