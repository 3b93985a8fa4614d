// kernels list, build, prewarm, stat, trim, verify, clear, export, import and doctor --capture, with the real compiler.
// The architecture is one for which nobody keeps a pack beside the program of a build.
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "cuda/jit/file_lock.h"
#include "plan/kernel_catalog.h"
#include "stand_in_gpu.h"

namespace fourfold::cli_test {
namespace {

using Keys = std::set<std::string>;
using Json = nlohmann::json;

const std::string kArch = "sm_120a";
const std::string kProblem = "t8 k2 e4 h64 i64 nvfp4 bf16 silu";
/// Kernels of its plans, and of the one band that they have.
const std::size_t kCount = kernels_of_problems(kArch, std::vector<Caps>{parse_problem(kProblem).caps}).size();
const Keys kCacheKeys = {"folder", "problem", "entries", "bytes", "max_bytes", "partial_files"};
const Keys kRemovalKeys = {"entries", "bytes", "entries_left", "bytes_left"};

/// A cache folder and a folder for packs of their own.
struct Kernels : testing::Test {
  TemporaryFolder folder;
  Variable cache{"FOURFOLD_CACHE_DIR", folder.file("cache")};
  Variable packs{"FOURFOLD_KERNEL_DIR", folder.file("packs")};
  const std::string pack = folder.file("packs") + "/" + kArch + ".pack";

  void SetUp() override {
    fs::create_directory(folder.file("packs"));
    const std::string reason = only_object(run({"doctor", "--quick", "--json"}))["nvrtc"]["reason"];
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  static Outcome kernels(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "kernels");
    return run(arguments);
  }
  /// `verb` about the problem's kernels.
  static std::vector<std::string> about(const std::string& verb, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {verb, "--arch", kArch, "--problem", kProblem};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Json json_of(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const Outcome outcome = kernels(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return only_object(outcome);
  }
  /// The origins of the problem's kernels, once each.
  static std::set<std::string> origins() {
    std::set<std::string> found;
    const Json list = json_of(about("list"));
    for (const Json& kernel : list["kernels"]) found.insert(kernel["origin"].get<std::string>());
    return found;
  }
  void build() const { ASSERT_EQ(kernels(about("build", {"-o", pack})).exit_code, 0); }
};

// ---- list ------------------------------------------------------------------------------------------------------

TEST_F(Kernels, ListHasTheDocumentedKeys) {
  const Json json = json_of({"list", "--arch", kArch});
  EXPECT_EQ(keys(json), (Keys{"architecture", "pack", "compiler", "cache", "kernels"}));
  EXPECT_EQ(keys(json["pack"]), (Keys{"path", "refused", "reason"}));
  EXPECT_EQ(keys(json["compiler"]), (Keys{"version", "path", "reason"}));
  EXPECT_EQ(keys(json["cache"]), kCacheKeys);
  EXPECT_GE(json["kernels"].size(), 50u);
  EXPECT_LE(json["kernels"].size(), 250u);
  for (const Json& kernel : json["kernels"]) EXPECT_EQ(keys(kernel), (Keys{"name", "source", "origin", "digest"}));
}

TEST_F(Kernels, ListPrintsTheIngredientsOfAKey) {
  const Outcome outcome = kernels(about("list", {"--keys"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"file moe/gate_up_tiles.cu", "bytes, digest ", "macro FORMAT", "value nvfp4",
                           "option --std=c++20", "architecture sm_120a", "compiler nvrtc "})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  const Json json = json_of(about("list", {"--keys"}));
  EXPECT_NE(json["kernels"][0]["key"].get<std::string>().find("compiler nvrtc "), std::string::npos);
}

TEST_F(Kernels, TheArchitectureMayComeFromTheProblem) {
  const Json json = json_of({"list", "--problem", kProblem + " @h200"});
  EXPECT_EQ(json["architecture"], "sm_90a");
  EXPECT_EQ(json["kernels"].size(), kCount);
}

TEST_F(Kernels, ProblemsAddUp) {
  const Json json = json_of(about("list", {"--problem", "t8 k2 e4 h64 i64 mxfp4 f16 relu2"}));
  EXPECT_GT(json["kernels"].size(), kCount);
  EXPECT_LT(json["kernels"].size(), 2 * kCount) << "the routing kernels are shared";
}

// ---- packs -----------------------------------------------------------------------------------------------------

TEST_F(Kernels, ABuiltPackIsFoundAndUsed) {
  EXPECT_EQ(origins(), std::set<std::string>{""});
  const Outcome outcome = kernels(about("build", {"-o", pack, "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = only_object(outcome);
  EXPECT_EQ(keys(json), (Keys{"path", "architecture", "compiler", "sources_digest", "bytes", "kernels", "seconds"}));
  EXPECT_EQ(json["bytes"], fs::file_size(pack));
  EXPECT_EQ(json["kernels"].size(), kCount);
  EXPECT_NE(outcome.err.find("build route_tiles"), std::string::npos) << "progress goes to stderr: " << outcome.err;
  EXPECT_EQ(origins(), std::set<std::string>{"pack"});
  EXPECT_EQ(json_of(about("list"))["pack"]["path"], pack);
  const Json prepared = json_of(about("prewarm"));
  EXPECT_EQ(prepared["from_pack"], kCount);
  EXPECT_EQ(prepared["compiled"], 0);
}

TEST_F(Kernels, BuildSaysCountSizeAndTime) {
  const Outcome outcome = kernels(about("build", {"-o", pack}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find(std::to_string(kCount) + " kernels for sm_120a"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("KiB"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" s\n"), std::string::npos) << outcome.out;
}

TEST_F(Kernels, ADamagedPackIsNamedAndNotUsed) {
  build();
  ASSERT_EQ(kernels({"clear"}).exit_code, 0);
  const std::string good = read_bytes(pack);
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  for (const std::string& bad : {flipped, good.substr(0, good.size() / 2)}) {
    std::ofstream(pack, std::ios::binary | std::ios::trunc) << bad;
    const Outcome listed = kernels(about("list"));
    EXPECT_EQ(listed.exit_code, 0);
    EXPECT_NE(listed.out.find(pack + "' is damaged"), std::string::npos) << listed.out;
    EXPECT_EQ(origins(), std::set<std::string>{""});
    const Outcome verified = kernels({"verify", pack, "--json"});
    EXPECT_EQ(verified.exit_code, 4);
    EXPECT_FALSE(only_object(verified)["ok"].get<bool>());
    const Json packs_seen = only_object(run({"doctor", "--quick", "--json"}))["packs"];
    const bool named = std::any_of(packs_seen.begin(), packs_seen.end(), [&](const Json& entry) {
      return entry["reason"].get<std::string>().find(pack) != std::string::npos;
    });
    EXPECT_TRUE(named || packs_seen.size() == 1) << packs_seen;  // with a GPU here, only its own pack is looked for
  }
}

TEST_F(Kernels, VerifyOfAGoodPackSaysWhatItHolds) {
  build();
  const Json json = json_of({"verify", pack});
  EXPECT_TRUE(json["ok"].get<bool>());
  ASSERT_EQ(json["packs"].size(), 1u);
  EXPECT_EQ(json["packs"][0]["kernels"].size(), kCount);
  EXPECT_EQ(json["packs"][0]["architecture"], kArch);
  EXPECT_EQ(kernels({"verify", pack, folder.file("none.pack")}).exit_code, 4);
  EXPECT_EQ(kernels({"verify", pack, "--remove-bad"}).exit_code, 2);
}

// ---- the cache -------------------------------------------------------------------------------------------------

TEST_F(Kernels, PrewarmCompilesOnce) {
  const Json first = json_of(about("prewarm"));
  EXPECT_EQ(keys(first), (Keys{"architecture", "kernels", "from_pack", "from_disk", "compiled", "bytes", "seconds"}));
  EXPECT_EQ(first["compiled"], kCount);
  EXPECT_EQ(origins(), std::set<std::string>{"disk"});
  const Json second = json_of(about("prewarm"));
  EXPECT_EQ(second["compiled"], 0);
  EXPECT_EQ(second["from_disk"], kCount);
}

TEST_F(Kernels, TheCacheGoesRound) {
  json_of(about("prewarm"));
  const Json stat = json_of({"stat"});
  EXPECT_EQ(keys(stat), kCacheKeys);
  EXPECT_EQ(stat["entries"], kCount);
  EXPECT_EQ(stat["problem"], "");
  const Json verified = json_of({"verify"});
  EXPECT_EQ(keys(verified), (Keys{"ok", "valid", "bad", "removed"}));
  ASSERT_EQ(verified["valid"].size(), kCount);
  EXPECT_EQ(keys(verified["valid"][0]), (Keys{"digest", "kernel", "architecture", "compiler", "bytes", "last_used"}));
  EXPECT_EQ(json_of({"export", folder.file("copy")})["entries"], kCount);
  EXPECT_EQ(kernels({"export", folder.file("copy")}).exit_code, 2) << "it is not empty";

  const Json trimmed = json_of({"trim", "--max-bytes", "1K"});
  EXPECT_EQ(keys(trimmed), kRemovalKeys);
  EXPECT_EQ(trimmed["entries"], kCount);
  EXPECT_EQ(trimmed["entries_left"], 0);
  EXPECT_EQ(json_of({"import", folder.file("copy")})["added"], kCount);
  EXPECT_EQ(json_of({"import", folder.file("copy")})["present"], kCount);
  EXPECT_EQ(origins(), std::set<std::string>{"disk"});
  EXPECT_EQ(json_of({"trim", "--max-bytes", "512M"})["entries"], 0);
  const Json cleared = json_of({"clear"});
  EXPECT_EQ(keys(cleared), kRemovalKeys);
  EXPECT_EQ(cleared["entries"], kCount);
  EXPECT_EQ(json_of({"stat"})["entries"], 0);
}

TEST_F(Kernels, BadEntriesAreNamedWith4) {
  json_of(about("prewarm"));
  json_of({"export", folder.file("copy")});
  for (const std::string& where : {folder.file("cache") + "/kernels", folder.file("copy")})
    for (const auto& item : fs::directory_iterator(where))
      if (item.is_regular_file()) {
        std::ofstream(item.path(), std::ios::binary | std::ios::app) << "x";
        break;
      }
  const Outcome verified = kernels({"verify"});
  EXPECT_EQ(verified.exit_code, 4);
  EXPECT_NE(verified.out.find("bad: " + folder.file("cache")), std::string::npos) << verified.out;
  EXPECT_EQ(kernels({"verify", "--remove-bad"}).exit_code, 4) << "it found one";
  EXPECT_EQ(kernels({"verify"}).exit_code, 0);
  json_of({"clear"});
  const Outcome imported = kernels({"import", folder.file("copy"), "--json"});
  EXPECT_EQ(imported.exit_code, 4);
  EXPECT_EQ(only_object(imported)["added"], kCount - 1);
  EXPECT_EQ(only_object(imported)["refused"].size(), 1u);
}

// ---- failures --------------------------------------------------------------------------------------------------

TEST_F(Kernels, HaveTheDocumentedExitCodes) {
  fs::create_symlink(folder.file("loop"), folder.file("loop"));
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  const std::vector<std::tuple<std::vector<std::string>, int, const char*>> calls = {
      {{}, 2, "subcommand"},
      {{"list", "--arch", "sm_75"}, 2, "sm_75"},
      {{"list", "--problem", kProblem + " @cpu"}, 2, "CPU"},
      {{"list", "--arch", "sm_80", "--problem", kProblem + " @h200"}, 2, "sm_90a"},
      {{"list", "--arch", kArch, "--problem", "t8"}, 2, "missing"},
      {{"list", "--arch", kArch, "--problem", "t8 k2 e4 h65 i64"}, 3, "65"},
      {{"prewarm", "--arch", kArch, "--problem", "t8 k2 e4 h64 i64 f32"}, 3, "F32"},
      {{"build", "--arch", kArch}, 2, "--output"},
      {about("build", {"-o", folder.file("none") + "/x.pack"}), 4, "none"},
      {about("build", {"-o", folder.file("packs")}), 4, "folder"},
      {{"verify", folder.file("none.pack")}, 4, ""},
      {{"import", folder.file("none")}, 4, "none"},
      {{"import", folder.file("loop")}, 4, "loop"},
      {{"import", std::string(5000, 'a')}, 4, "too long"},
      {about("build", {"-o", folder.file("pipe")}), 4, "pipe"},
      {about("build", {"-o", folder.file(std::string(250, 'a'))}), 4, "too long"},
      {{"export"}, 2, "folder"},
      {{"trim", "--max-bytes", "12Q"}, 2, "12Q"},
      {{"trim", "--max-bytes", "-1"}, 2, "-1"},
      {{"trim", "--max-bytes", ""}, 2, "--max-bytes ''"},
      {{"trim", "--max-bytes", "99999999999T"}, 2, "99999999999T"},
  };
  for (const auto& [arguments, code, says] : calls) {
    const Outcome outcome = kernels(arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  }
  const Variable off("FOURFOLD_NO_DISK_CACHE", "1");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"clear"},
                                             {"trim"},
                                             {"verify"},
                                             {"export", folder.file("x")},
                                             {"import", folder.file("packs")},
                                             about("prewarm")}) {
    const Outcome outcome = kernels(arguments);
    EXPECT_EQ(outcome.exit_code, 7) << arguments[0] << outcome.err;
    EXPECT_NE(outcome.err.find("FOURFOLD_NO_DISK_CACHE"), std::string::npos) << outcome.err;
  }
  EXPECT_NE(json_of({"stat"})["problem"], "");
}

TEST_F(Kernels, CtrlCLeavesNothingHalfWritten) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    execl(kProgram.c_str(), "fourfold", "kernels", "build", "--arch", kArch.c_str(), "-o", pack.c_str(),
          static_cast<char*>(nullptr));
    _exit(99);
  }
  // The whole catalog takes seconds; the first entry in the cache says that the work is under way.
  const auto started = [&] {
    std::error_code ignored;
    for (const auto& item : fs::directory_iterator(folder.file("cache") + "/kernels", ignored))
      if (item.path().extension() == ".kernel") return true;
    return false;
  };
  for (int i = 0; i < 3000 && !started(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(started());
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_TRUE(fs::is_empty(folder.file("packs")));
  EXPECT_EQ(json_of({"stat"})["partial_files"], 0);
  EXPECT_TRUE(json_of({"verify"})["ok"].get<bool>());
}

// The holder of the lock may be stopped, and then no end of the wait is in sight.
TEST_F(Kernels, CtrlCEndsTheWaitForAnotherProcess) {
  const Json list = json_of(about("list"));
  const fs::path locks = folder.file("cache") + "/kernels/locks";
  fs::create_directories(locks);
  std::string reason;
  std::vector<cuda::FileLock> held;
  for (const Json& kernel : list["kernels"])
    held.push_back(*cuda::FileLock::acquire(locks / kernel["digest"].get<std::string>(), cuda::FileLock::Wait::no,
                                            reason));
  for (const bool build : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, 1);
      dup2(null, 2);
      execl(kProgram.c_str(), "fourfold", "kernels", build ? "build" : "prewarm", "--arch", kArch.c_str(), "--problem",
            kProblem.c_str(), build ? "-o" : nullptr, pack.c_str(), static_cast<char*>(nullptr));
      _exit(99);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WNOHANG), 0) << "it did not wait";
    kill(child, SIGTERM);
    pid_t ended = 0;
    for (int i = 0; i < 500 && ended == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ended = waitpid(child, &status, WNOHANG);
    }
    if (ended == 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    EXPECT_TRUE(WIFEXITED(status)) << "SIGTERM did not end it";
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  }
}

TEST_F(Kernels, AnErrorIsAnObjectHoweverTheFlagIsWritten) {
  for (const char* flag : {"--json", "--json=true", "--json=1"})
    EXPECT_EQ(only_object(kernels({"list", "--arch", "sm_1", flag}))["error"]["code"], 2) << flag;
  EXPECT_EQ(kernels({"list", "--arch", "sm_1", "--json=false"}).out, "");
}

// Before the first compile: nothing may be in the cache afterwards.
TEST_F(Kernels, ABuildWithNoPlaceForItsPackCompilesNothing) {
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& name : {folder.file("pipe"), folder.file(std::string(250, 'a'))})
    EXPECT_EQ(kernels(about("build", {"-o", name})).exit_code, 4);
  EXPECT_EQ(json_of({"stat"})["entries"], 0);
}

// ---- doctor ----------------------------------------------------------------------------------------------------

TEST_F(Kernels, CapturesAreResolvedOrSayHow) {
  const std::vector<std::string> arguments = {"doctor", "--capture", "1,2,8",    "--problem",
                                              kProblem, "--device",  "rtx-5090", "--json"};
  const Outcome missing = run(arguments);
  EXPECT_EQ(missing.exit_code, 3) << missing.err;
  Json json = only_object(missing);
  EXPECT_EQ(keys(json), (Keys{"problem", "device", "architecture", "resolved", "sizes", "note"}));
  ASSERT_EQ(json["sizes"].size(), 3u);
  const std::string all_missing = "missing: " + std::to_string(kCount) + " of " + std::to_string(kCount);
  for (const Json& size : json["sizes"]) {
    EXPECT_EQ(keys(size), (Keys{"tokens", "resolved", "state", "kernels", "command"}));
    EXPECT_EQ(size["state"], all_missing);
    EXPECT_EQ(size["command"], "fourfold kernels prewarm --arch " + kArch + " --problem '" + kProblem + "'");
  }
  // The command that it names, word by word.
  json_of({"prewarm", "--arch", kArch, "--problem", kProblem});
  const Outcome resolved = run(arguments);
  EXPECT_EQ(resolved.exit_code, 0) << resolved.err;
  json = only_object(resolved);
  EXPECT_TRUE(json["resolved"].get<bool>());
  for (const Json& size : json["sizes"]) {
    EXPECT_EQ(size["state"], "resolved (disk)");
    EXPECT_EQ(size["command"], "");
  }
  EXPECT_NE(json["note"].get<std::string>().find("warm_up(plan, backend)"), std::string::npos);
  build();
  const Outcome packed = run({"doctor", "--capture", "4", "--problem", kProblem + " @rtx-5090"});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_NE(packed.out.find("resolved (pack)"), std::string::npos) << packed.out;
  EXPECT_NE(packed.out.find("warm_up(plan, backend)"), std::string::npos) << packed.out;
}

TEST(DoctorCapture, RefusesWhatItCannotAnswer) {
  const std::vector<std::pair<std::vector<std::string>, int>> calls = {
      {{"--capture", "1,9", "--problem", kProblem, "--device", "h200"}, 3},  // the plan ends at 8
      {{"--capture", "0", "--problem", kProblem, "--device", "h200"}, 2},    // launches nothing
      {{"--capture", "x", "--problem", kProblem, "--device", "h200"}, 2},
      {{"--capture", "1", "--problem", kProblem, "--device", "cpu"}, 2},
      {{"--capture", "1", "--device", "h200"}, 2},
      {{"--problem", kProblem}, 2},
      {{"--device", "h200"}, 2},
      {{"--capture", "1", "--problem", "t8 k2 e4 h65 i64", "--device", "h200"}, 3},
  };
  for (auto [arguments, code] : calls) {
    arguments.insert(arguments.begin(), "doctor");
    EXPECT_EQ(run(arguments).exit_code, code) << arguments.back();
  }
}

TEST_F(StandInGpu, IsDescribedByDoctor) {
  const Json json = only_object(run({"doctor", "--quick", "--json"}));
  const Json& gpu = json["gpu"];
  EXPECT_EQ(gpu["driver_version"], "13.0");
  EXPECT_NE(gpu["driver_path"], "");
  EXPECT_TRUE(gpu["usable"].get<bool>());
  ASSERT_EQ(gpu["devices"].size(), 2u);
  const Json& device = gpu["devices"][1];
  EXPECT_EQ(keys(device),
            (Keys{"ordinal", "name", "arch", "compute_capability", "multiprocessors", "shared_memory_bytes",
                  "memory_bytes", "l2_bytes", "clock_mhz", "memory_clock_mhz", "memory_bus_bits", "memory_gb_per_s"}));
  EXPECT_EQ(device["name"], "Stand-in GPU 1");
  EXPECT_EQ(device["arch"], "sm_90a");
  ASSERT_EQ(json["packs"].size(), 1u) << "only the architectures that are here";
  EXPECT_EQ(json["packs"][0]["architecture"], "sm_90a");
  const Outcome text = run({"doctor", "--quick"});
  for (const char* part : {"cuda:1: Stand-in GPU 1 (sm_90a)", "SMs at 1980 MHz", "4917 GB/s", "runs CUDA 13.0"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  EXPECT_EQ(only_object(run({"kernels", "list", "--json"}))["architecture"], "sm_90a") << "the first GPU's";
}

// NVRTC looks for a driver by itself.
TEST_F(StandInGpu, NvrtcCompilesBesideIt) {
  const Variable cache("FOURFOLD_CACHE_DIR", folder.file("cache"));
  if (!only_object(run({"doctor", "--quick", "--json"}))["nvrtc"]["reason"].get<std::string>().empty()) GTEST_SKIP();
  const Outcome outcome = run({"kernels", "prewarm", "--arch", kArch, "--problem", kProblem, "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << outcome.err;
  EXPECT_EQ(only_object(outcome)["compiled"], kCount);
}

// Launches do nothing there, so the results are wrong; the counters are what they are on a GPU.
TEST_F(StandInGpu, WithAPackAFirstRunCompilesNothing) {
  write_stand_in_pack(folder.file("sm_90a.pack"));
  const Variable packs("FOURFOLD_KERNEL_DIR", folder.file(""));
  const Variable off("FOURFOLD_NO_DISK_CACHE", "1");
  const Outcome moe = run({"verify", "moe", kProblem, "--device", "cuda:0", "--json"});
  EXPECT_EQ(moe.exit_code, 5) << moe.err;
  const Outcome cases =
      run({"verify", "case", kData + "/cases/plain_nvfp4.safetensors", "--device", "cuda:0", "--json"});
  EXPECT_EQ(cases.exit_code, 5) << cases.err;
  for (const Outcome* outcome : {&moe, &cases}) {
    const Json json = only_object(*outcome);
    ASSERT_TRUE(json.contains("kernels")) << outcome->out;
    const Json& counters = json["kernels"];
    EXPECT_EQ(keys(counters),
              (Keys{"from_memory", "from_pack", "from_disk", "compiled", "loaded", "refusals", "launches"}));
    EXPECT_EQ(counters["from_pack"], kCount);
    EXPECT_EQ(counters["from_disk"], 0);
    EXPECT_EQ(counters["compiled"], 0);
    EXPECT_EQ(counters["loaded"], kCount);
    EXPECT_EQ(counters["refusals"], 0);
    ASSERT_EQ(counters["launches"].size(), kCount);
    for (const Json& entry : counters["launches"]) {
      EXPECT_EQ(keys(entry), (Keys{"kernel", "launches"}));
      EXPECT_GT(entry["launches"].get<int>(), 0) << entry;
    }
  }
}

}  // namespace
}  // namespace fourfold::cli_test
