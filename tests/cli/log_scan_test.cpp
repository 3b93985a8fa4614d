// doctor --scan: known lines of logs, ours and others', and what must not be taken for one.
#include "program.h"

namespace fourfold::cli_test {
namespace {

using Json = nlohmann::json;

Json scan(const std::string& text, const std::vector<std::string>& more = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.file("server.log");
  std::ofstream(path, std::ios::binary) << text;
  std::vector<std::string> arguments{"doctor", "--scan", path, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return only_object(outcome);
}

std::vector<std::string> names(const Json& json) {
  std::vector<std::string> found;
  for (const Json& finding : json["findings"]) found.push_back(finding["signature"]);
  return found;
}

using Names = std::vector<std::string>;

TEST(LogScan, KnowsTheLinesThatOperatorsMeet) {
  const std::pair<const char*, const char*> rows[] = {
      {"ValueError: To serve at least one request with the models's max seq len (131072), 0.98 GiB KV cache is needed, "
       "which is larger than the available KV cache memory (0.82 GiB). Based on the available memory, the estimated "
       "maximum model length is 110080.",
       "admission"},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has 32.81 MiB free.",
       "out_of_memory"},
      {"CUDA error: operation not permitted when stream is capturing", "capture_forbidden"},
      {"RuntimeError: an illegal memory access was encountered", "illegal_address"},
      {"Sequence group 7 is preempted by PreemptionMode.RECOMPUTE", "preemption"},
      {"RuntimeError: stream key collision between channels 3 and 4", "stream_key_collision"},
      {"[Rank 2] Watchdog caught collective operation timeout", "collective"},
      {"NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus", "gpu_fault"},
      {"Out of memory: Killed process 4711 (python3)", "killed"},
      {"KernelResolutionFrozenError: w4a16_fused_moe", "capture_warm_up_asked"}};
  for (const auto& [line, signature] : rows) EXPECT_EQ(names(scan(line)), Names{signature}) << line;
}

TEST(LogScan, KnowsOurOwnErrors) {
  EXPECT_EQ(names(scan("kernel down<F> of t64 is not loaded on cuda:0, and the stream's capture is active; call "
                       "warm_up(plan, backend) before the capture begins")),
            Names{"capture_miss"});
  EXPECT_EQ(names(scan("kernel down<F> of t64 is not loaded on cuda:0, and the cache is frozen; call ...")),
            Names{"frozen_miss"});
  EXPECT_EQ(names(scan("bind: workspace has 5 bytes, the plan needs 9; pass plan.workspace_bytes() bytes")),
            Names{"workspace_short"});
}

// The texts are those that the program writes today, not those of the day when the table was made.
TEST(LogScan, KnowsWhatThisProgramWrites) {
  EXPECT_EQ(names(scan(run({"plan", "t4 k2 e4 h65 i64"}).err)), Names{"plan_refused"});
  setenv("FOURFOLD_ABACUS", "1", 1);
  const Outcome warned = run({"plan", "t4 k2 e4 h64 i64"});
  unsetenv("FOURFOLD_ABACUS");
  EXPECT_EQ(names(scan(warned.err)), Names{"unknown_setting"}) << warned.err;
  // Messages of parts that need a GPU: looked up in the sources.
  const std::pair<const char*, const char*> texts[] = {
      {"/src/cuda/module_cache.cpp", "is not loaded on cuda:{}, and the stream's capture is {}"},
      {"/src/cuda/module_cache.cpp", "is not loaded on cuda:{}, and the cache is frozen"},
      {"/src/moe/bind.cpp", "bind: workspace has {} bytes, the plan needs {}"},
      {"/src/moe/bind.cpp", "tokens, but the plan serves at most max_tokens"},
      {"/src/cuda/handles.cpp", "free device memory, or plan for fewer tokens"},
      {"/src/cuda/jit/image_store.cpp", "from the disk cache is dropped"},
      {"/src/cuda/driver_api.cpp", "no CUDA driver: {}"}};
  for (const auto& [file, text] : texts)
    EXPECT_NE(read_bytes(kSource + file).find(text), std::string::npos) << file << " no longer says: " << text;
}

TEST(LogScan, ACompileCountsOnlyAfterReady) {
  const Json early = scan("compiling kernels\nINFO: Application startup complete.\n");
  EXPECT_EQ(names(early), Names{});
  EXPECT_EQ(early["ready_line"], 2);
  const Json late = scan("INFO: Application startup complete.\nGET /v1\nJIT compile of w4a16, 2.1 s\n");
  EXPECT_EQ(names(late), Names{"compile_after_ready"});
  EXPECT_EQ(late["findings"][0]["lines"], Json::array({3}));
}

TEST(LogScan, CountsAndPlacesAndStartsWhereAsked) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "Sequence group is preempted by PreemptionMode.SWAP\nquiet\n";
  const Json all = scan(text);
  EXPECT_EQ(all["lines"], 100);
  EXPECT_EQ(all["findings"][0]["count"], 50);
  EXPECT_EQ(all["findings"][0]["lines"][1], 3);
  EXPECT_LE(all["findings"][0]["lines"].size(), 20u);
  EXPECT_EQ(scan(text, {"--from-line", "90"})["findings"][0]["count"], 5);
}

TEST(LogScan, QuietLogsHaveNoFindings) {
  EXPECT_EQ(names(scan("INFO 08-01 all is well\nloaded 12 shards\n")), Names{});
  EXPECT_EQ(names(scan("")), Names{});
}

TEST(LogScan, AnyBytesAreALog) {
  std::string bytes(200'000, '\xff');
  bytes += "\n\x1b[31mCUDA out of memory. Tried to allocate 1 GiB\x1b[0m\n";
  bytes += std::string(3, '\0');
  const Json json = scan(bytes);
  EXPECT_EQ(names(json), Names{"out_of_memory"});
  EXPECT_EQ(json["findings"][0]["text"].get<std::string>().find('\x1b'), std::string::npos);
}

TEST(LogScan, SaysWhatItMeansAndWhatToDo) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("log")) << "CUDA error: operation not permitted when stream is capturing\n";
  const Outcome outcome = run({"doctor", "--scan", folder.file("log")});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* part : {"capture_forbidden", "means:", "do:", "first at line 1"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace fourfold::cli_test
