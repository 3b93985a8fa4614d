// Lists, packs and the cache through the public header, with the real compiler. The architecture is one for which
// nobody keeps a pack beside the programs of a build.
#include <map>

#include "cuda/jit/kernel_pack.h"
#include "fourfold/kernels.h"
#include "fourfold/plan.h"
#include "jit/nvrtc_fixture.h"
#include "plan/kernel_catalog.h"
#include "support/error_code.h"

namespace fourfold::cuda {
namespace {

using support::code_of;

const std::string kArch = "sm_120a";
const std::string kPack = kArch + ".pack";

std::size_t with_origin(const std::vector<KernelState>& kernels, const std::string& origin) {
  return static_cast<std::size_t>(std::count_if(kernels.begin(), kernels.end(),
                                                [&](const KernelState& kernel) { return kernel.origin == origin; }));
}

struct KernelLibraryTest : NvrtcTest {
  TemporaryFolder folder;
  Settings settings;
  const std::vector<Caps> problem{parse_problem("t8 k2 e4 h64 i64 nvfp4 bf16 silu").caps};
  const std::vector<KernelSpec> specs = kernels_of_problems(kArch, problem);
  const std::size_t count = specs.size();  // of the problem's kernels

  void SetUp() override {
    NvrtcTest::SetUp();
    fs::create_directory(folder / "packs");
    settings.cache_dir = (folder / "cache").string();
    settings.kernel_dir = (folder / "packs").string();
  }
  fs::path pack() const { return folder / "packs" / kPack; }
  std::vector<std::string> names_in(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(folder / name)) names.push_back(item.path().filename());
    return names;
  }
};

// ---- lists -----------------------------------------------------------------------------------------------------

TEST_F(KernelLibraryTest, ListsTheCatalogAndFindsNothingAtFirst) {
  const std::vector<KernelState> kernels = KernelLibrary(settings).list(kArch);
  const std::vector<KernelSpec> catalog = kernel_catalog(kArch);
  ASSERT_EQ(kernels.size(), catalog.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(kernels[i].name, catalog[i].name());
    EXPECT_EQ(kernels[i].source, catalog[i].source);
    EXPECT_EQ(kernels[i].origin, "") << kernels[i].name;
    EXPECT_EQ(kernels[i].digest.size(), 32u);
  }
}

TEST_F(KernelLibraryTest, AKeyIsPrintedWithEveryIngredient) {
  const std::vector<KernelState> kernels = KernelLibrary(settings).list(kArch, problem);
  ASSERT_EQ(kernels.size(), count);
  const auto of_first_step = [](const KernelState& kernel) { return kernel.source == "moe/gate_up_tiles.cu"; };
  const auto found = std::find_if(kernels.begin(), kernels.end(), of_first_step);
  ASSERT_NE(found, kernels.end());
  const std::string& key = found->key;
  for (const char* part :
       {"file moe/gate_up_tiles.cu\n", "file params/tile_params.h\n", "digest ", "entry gate_up_tiles\n",
        "macro FORMAT\nvalue nvfp4\n", "option --fmad=false\n", "architecture sm_120a\n", "compiler nvrtc "})
    EXPECT_NE(key.find(part), std::string::npos) << part << "\n" << key;
}

TEST_F(KernelLibraryTest, WhatPlanningRefusesIsRefused) {
  KernelLibrary library(settings);
  EXPECT_EQ(code_of([&] { library.list("sm_75"); }), ErrorCode::usage);
  const std::vector<Caps> wide{parse_problem("t8 k2 e4 h64 i64 f32").caps};
  EXPECT_EQ(code_of([&] { library.list(kArch, wide); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { library.build(kArch, pack(), wide); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { library.prewarm(kArch, wide); }), ErrorCode::unsupported);
}

TEST_F(KernelLibraryTest, TheCompilerIsNamed) {
  const KernelCompilerState compiler = KernelLibrary(settings).compiler();
  EXPECT_EQ(compiler.version, nvrtc->version());
  EXPECT_EQ(compiler.reason, "");
  EXPECT_TRUE(fs::exists(compiler.path)) << compiler.path;
}

// ---- prewarm ---------------------------------------------------------------------------------------------------

TEST_F(KernelLibraryTest, PrewarmCompilesOnce) {
  KernelLibrary library(settings);
  const KernelPreparation first = library.prewarm(kArch, problem);
  EXPECT_EQ(first.compiled, count);
  EXPECT_EQ(first.from_disk + first.from_pack, 0u);
  EXPECT_GT(first.bytes, count * 500);
  EXPECT_EQ(with_origin(library.list(kArch, problem), "disk"), count);
  const KernelPreparation second = library.prewarm(kArch, problem);
  EXPECT_EQ(second.from_disk, count);
  EXPECT_EQ(second.compiled, 0u);
  EXPECT_EQ(second.bytes, first.bytes);
  EXPECT_EQ(with_origin(library.list(kArch), "disk"), count) << "the others were not asked for";
}

TEST_F(KernelLibraryTest, PrewarmIntoACacheThatKeepsNothingIsAnError) {
  Settings off = settings;
  off.no_disk_cache = true;
  EXPECT_EQ(code_of([&] { KernelLibrary(off).prewarm(kArch, problem); }), ErrorCode::unavailable);
  Settings small = settings;
  small.cache_max_bytes = 40'000;  // one or two kernels
  EXPECT_EQ(code_of([&] { KernelLibrary(small).prewarm(kArch, problem); }), ErrorCode::unavailable);
  Settings file = settings;
  write_bytes(folder / "file", "x");
  file.cache_dir = (folder / "file").string();
  EXPECT_EQ(code_of([&] { KernelLibrary(file).prewarm(kArch, problem); }), ErrorCode::unavailable);
}

// ---- packs -----------------------------------------------------------------------------------------------------

TEST_F(KernelLibraryTest, APackIsBuiltAndFoundAndThenNothingIsCompiled) {
  KernelLibrary library(settings);
  EXPECT_TRUE(library.pack(kArch).path.empty());
  EXPECT_NE(library.pack(kArch).reason.find(kPack), std::string::npos);
  std::vector<std::string> steps;
  const PackContent built = library.build(kArch, pack(), problem, [&](auto done, auto total, const std::string& name) {
    steps.push_back(std::to_string(done) + "/" + std::to_string(total) + (name.empty() ? "" : " " + name));
  });
  ASSERT_EQ(steps.size(), count + 1);
  EXPECT_EQ(steps[0], "0/" + std::to_string(count) + " " + specs[0].name());
  EXPECT_EQ(steps.back(), std::to_string(count) + "/" + std::to_string(count));
  EXPECT_EQ(built.path, pack());
  EXPECT_EQ(built.architecture, kArch);
  EXPECT_EQ(built.compiler, "nvrtc " + nvrtc->version());
  EXPECT_EQ(built.bytes, fs::file_size(pack()));
  EXPECT_EQ(built.kernels.size(), count);
  EXPECT_EQ(built.sources_digest.size(), 32u);
  EXPECT_EQ(built.stale_reason, "");
  EXPECT_EQ(names_in("packs"), std::vector<std::string>{kPack}) << "nothing else is left";
  EXPECT_EQ(library.pack(kArch).path, pack());
  EXPECT_EQ(with_origin(library.list(kArch, problem), "pack"), count);

  Settings without_cache = settings;
  without_cache.no_disk_cache = true;
  const KernelPreparation prepared = KernelLibrary(without_cache).prewarm(kArch, problem);
  EXPECT_EQ(prepared.from_pack, count);
  EXPECT_EQ(prepared.compiled, 0u);
}

TEST_F(KernelLibraryTest, TheSamePackIsBuiltFromTheCacheToTheByte) {
  KernelLibrary library(settings);
  library.build(kArch, pack(), problem);
  const std::string first = read_bytes(pack());
  EXPECT_EQ(library.stat().entries, count);
  library.build(kArch, pack(), problem);
  EXPECT_EQ(read_bytes(pack()), first);
  library.clear();
  library.build(kArch, pack(), problem);
  EXPECT_EQ(read_bytes(pack()), first);
}

TEST_F(KernelLibraryTest, ADamagedPackIsNamedAndNotUsed) {
  KernelLibrary library(settings);
  library.build(kArch, pack(), problem);
  const std::string good = read_bytes(pack());
  std::string flipped = good, cut(good.begin(), good.begin() + static_cast<long>(good.size() / 2));
  flipped[flipped.size() / 2] ^= 1;
  library.clear();
  for (const std::string& bad : {flipped, cut, std::string()}) {
    write_bytes(pack(), bad);
    const PackState state = library.pack(kArch);
    EXPECT_TRUE(state.path.empty());
    ASSERT_EQ(state.refused.size(), 1u);
    EXPECT_NE(state.refused[0].find(pack().string()), std::string::npos) << state.refused[0];
    EXPECT_NE(state.reason.find("damaged"), std::string::npos) << state.reason;
    EXPECT_EQ(with_origin(library.list(kArch, problem), ""), count);
    EXPECT_EQ(code_of([&] { library.read_pack(pack()); }), ErrorCode::bad_input);
  }
  write_bytes(pack(), good);
  EXPECT_EQ(with_origin(library.list(kArch, problem), "pack"), count);
}

/// A pack as another version of the program would have built it: its sources differ in a comment.
void write_stale_pack(const fs::path& file) {
  std::vector<std::string> texts;
  std::vector<SourceFile> files;
  for (const SourceFile& source : embedded_files()) texts.push_back(std::string(source.text) + "// of yesterday\n");
  for (std::size_t i = 0; i < texts.size(); ++i) files.push_back({embedded_files()[i].path, texts[i]});
  const SourceTree tree(files);
  KernelPackWriter writer(tree, {kArch, compile_options(), "nvrtc 13.0"});
  for (const KernelSpec& spec : kernel_catalog(kArch)) writer.add(spec, image_of("an image of yesterday"));
  writer.write(file);
}

TEST_F(KernelLibraryTest, AStalePackIsNamedAndNotUsed) {
  write_stale_pack(pack());
  KernelLibrary library(settings);
  const PackState state = library.pack(kArch);
  EXPECT_TRUE(state.path.empty());
  EXPECT_NE(state.reason.find(pack().string()), std::string::npos) << state.reason;
  EXPECT_NE(state.reason.find("stale"), std::string::npos) << state.reason;
  EXPECT_EQ(with_origin(library.list(kArch), "pack"), 0u);
  const PackContent content = library.read_pack(pack());
  EXPECT_NE(content.stale_reason.find("other sources"), std::string::npos) << content.stale_reason;
  EXPECT_EQ(content.kernels.size(), kernel_catalog(kArch).size());
}

TEST_F(KernelLibraryTest, APackForAnotherArchitectureIsNotUsed) {
  KernelLibrary library(settings);
  library.build("sm_80", pack(), problem);
  EXPECT_NE(library.pack(kArch).reason.find("it is for sm_80"), std::string::npos) << library.pack(kArch).reason;
}

TEST_F(KernelLibraryTest, ABuildThatCannotBeWrittenCompilesNothing) {
  KernelLibrary library(settings);
  int steps = 0;
  const auto note = [&](std::size_t, std::size_t, const std::string&) { ++steps; };
  EXPECT_EQ(code_of([&] { library.build(kArch, folder / "none" / "a.pack", problem, note); }), ErrorCode::bad_input);
  EXPECT_EQ(code_of([&] { library.build(kArch, folder.path(), problem, note); }), ErrorCode::bad_input);
  EXPECT_EQ(code_of([&] { library.build(kArch, {}, problem, note); }), ErrorCode::usage);
  const std::vector<Caps> nothing{parse_problem("t0 k2 e4 h64 i64").caps};
  EXPECT_EQ(code_of([&] { library.build(kArch, pack(), nothing, note); }), ErrorCode::usage);
  EXPECT_EQ(steps, 0);
}

TEST_F(KernelLibraryTest, WorkThatIsStoppedLeavesNothingHalfWritten) {
  KernelLibrary library(settings);
  struct Stopped {};
  const auto stop = [](std::size_t done, std::size_t, const std::string&) {
    if (done == 2) throw Stopped{};
  };
  EXPECT_THROW(library.build(kArch, pack(), problem, stop), Stopped);
  EXPECT_TRUE(names_in("packs").empty());
  EXPECT_THROW(library.prewarm(kArch, problem, stop), Stopped);
  EXPECT_EQ(library.stat().entries, 2u) << "what was ready stays";
  EXPECT_EQ(library.stat().partial_files, 0u);
  int files = 0;
  const auto stop_copy = [&] {
    if (++files == 2) throw Stopped{};
  };
  EXPECT_THROW(library.export_to(folder / "copy", stop_copy), Stopped);
  EXPECT_FALSE(fs::exists(folder / "copy"));
}

// ---- the cache -------------------------------------------------------------------------------------------------

TEST_F(KernelLibraryTest, EntriesGoToAnotherMachineAndBack) {
  KernelLibrary here(settings);
  here.prewarm(kArch, problem);
  EXPECT_EQ(here.export_to(folder / "copy"), count);
  EXPECT_EQ(code_of([&] { here.export_to(folder / "copy"); }), ErrorCode::usage) << "it is not empty";
  Settings other = settings;
  other.cache_dir = (folder / "other").string();
  KernelLibrary there(other);
  EXPECT_EQ(with_origin(there.list(kArch, problem), "disk"), 0u);
  const fs::path victim = fs::directory_iterator(folder / "copy")->path();
  std::string bytes = read_bytes(victim);
  bytes[bytes.size() / 2] ^= 1;
  write_bytes(victim, bytes);
  const CacheImport taken = there.import_from(folder / "copy");
  EXPECT_EQ(taken.added, count - 1);
  ASSERT_EQ(taken.refused.size(), 1u);
  EXPECT_EQ(taken.refused[0].file, victim.string());
  EXPECT_EQ(with_origin(there.list(kArch, problem), "disk"), count - 1);
  EXPECT_EQ(there.import_from(folder / "copy").present, count - 1);
  EXPECT_EQ(code_of([&] { there.import_from(folder / "none"); }), ErrorCode::bad_input);
}

TEST_F(KernelLibraryTest, VerifyTrimAndClear) {
  KernelLibrary library(settings);
  library.prewarm(kArch, problem);
  const CacheVerification verification = library.verify();
  ASSERT_EQ(verification.valid.size(), count);
  EXPECT_TRUE(verification.bad.empty());
  EXPECT_EQ(verification.valid[0].kernel, specs[0].name());
  EXPECT_EQ(verification.valid[0].architecture, kArch);
  std::uint64_t largest = 0;
  for (const CacheEntry& entry : verification.valid) largest = std::max(largest, entry.bytes);
  const CacheRemoval trimmed = library.trim(largest);
  EXPECT_GT(trimmed.entries, 0u);
  EXPECT_LE(trimmed.bytes_left, largest);
  EXPECT_EQ(library.stat().bytes, trimmed.bytes_left);
  EXPECT_EQ(library.clear().entries, trimmed.entries_left);
  EXPECT_EQ(library.stat().entries, 0u);
}

TEST_F(KernelLibraryTest, ACacheThatIsNotUsedIsUnavailable) {
  settings.no_disk_cache = true;
  KernelLibrary library(settings);
  EXPECT_NE(library.stat().problem, "");
  EXPECT_EQ(code_of([&] { library.trim(0); }), ErrorCode::unavailable);
  EXPECT_EQ(code_of([&] { library.verify(); }), ErrorCode::unavailable);
  EXPECT_EQ(code_of([&] { library.clear(); }), ErrorCode::unavailable);
  EXPECT_EQ(code_of([&] { library.export_to(folder / "copy"); }), ErrorCode::unavailable);
  EXPECT_EQ(code_of([&] { library.import_from(folder.path()); }), ErrorCode::unavailable);
}

}  // namespace
}  // namespace fourfold::cuda
