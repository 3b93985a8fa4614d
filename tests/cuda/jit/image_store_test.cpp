// Memory, pack, disk, compiler, in this order, counted; and nothing but memory after freeze.
#include "cuda/jit/image_store.h"

#include <thread>

#include "jit_fixture.h"

namespace fourfold::cuda {
namespace {

struct ImageStoreTest : testing::Test {
  TemporaryFolder folder;
  Reports reports;
  std::shared_ptr<PretendingCompiler> compiler = std::make_shared<PretendingCompiler>();

  ImageStoreOptions options() {
    ImageStoreOptions options;
    options.sources = &sample_tree();
    options.compiler = compiler;
    options.pack_folders = {folder / "packs"};
    options.disk = {folder / "cache", 1ull << 30, true, reports.sink()};
    options.report = reports.sink();
    return options;
  }
  void write_pack(const char* text = "from the pack") {
    fs::create_directories(folder / "packs");
    KernelPackWriter writer(sample_tree(), sample_target());
    writer.add(sample_spec(), image_of(text));
    writer.write(folder / "packs" / "sm_90a.pack");
  }
};

TEST_F(ImageStoreTest, CompilesThenReadsDiskThenMemory) {
  ImageStore first(options());
  EXPECT_EQ(first.get(sample_spec(), "sm_90a").origin, ImageOrigin::compiled);
  EXPECT_EQ(first.get(sample_spec(), "sm_90a").origin, ImageOrigin::memory);
  EXPECT_EQ(first.counters(), (ImageCounters{1, 0, 0, 1, 0}));
  ImageStore second(options());
  const ImageStore::Resolved resolved = second.get(sample_spec(), "sm_90a");
  EXPECT_EQ(resolved.origin, ImageOrigin::disk);
  EXPECT_EQ(*resolved.image, image_of(sample_spec().name() + "sm_90a"));
  EXPECT_EQ(second.counters(), (ImageCounters{0, 0, 1, 0, 0}));
  EXPECT_EQ(compiler->compiles, 1);
}

TEST_F(ImageStoreTest, ThePackComesBeforeDiskAndNeedsNoCompiler) {
  ImageStore(options()).get(sample_spec(), "sm_90a");
  write_pack();
  compiler->present = false;
  ImageStore store(options());
  const ImageStore::Resolved resolved = store.get(sample_spec(), "sm_90a");
  EXPECT_EQ(resolved.origin, ImageOrigin::pack);
  EXPECT_EQ(*resolved.image, image_of("from the pack"));
  EXPECT_EQ(store.counters(), (ImageCounters{0, 1, 0, 0, 0}));
  EXPECT_EQ(store.pack_text("sm_90a"), (folder / "packs" / "sm_90a.pack").string());
}

TEST_F(ImageStoreTest, ADamagedPackIsNamedOnceAndNotUsed) {
  write_pack();
  write_bytes(folder / "packs" / "sm_90a.pack", "{");
  ImageStore store(options());
  EXPECT_EQ(store.get(sample_spec("1"), "sm_90a").origin, ImageOrigin::compiled);
  EXPECT_EQ(store.get(sample_spec("2"), "sm_90a").origin, ImageOrigin::compiled);
  ASSERT_EQ(reports.texts().size(), 1u);
  EXPECT_NE(reports.texts()[0].find((folder / "packs" / "sm_90a.pack").string()), std::string::npos);
}

TEST_F(ImageStoreTest, ArchitecturesAndMacrosAreKeptApart) {
  ImageStore store(options());
  EXPECT_NE(*store.get(sample_spec("1"), "sm_90a").image, *store.get(sample_spec("1"), "sm_80").image);
  EXPECT_NE(*store.get(sample_spec("1"), "sm_90a").image, *store.get(sample_spec("2"), "sm_90a").image);
  EXPECT_EQ(compiler->compiles, 3);
}

TEST_F(ImageStoreTest, AnotherCompilerVersionIsAMiss) {
  ImageStore(options()).get(sample_spec(), "sm_90a");
  compiler->version = "pretended 2";
  EXPECT_EQ(ImageStore(options()).get(sample_spec(), "sm_90a").origin, ImageOrigin::compiled);
}

TEST_F(ImageStoreTest, WithoutPackAndCompilerTheErrorSaysBoth) {
  compiler->present = false;
  ImageStore store(options());
  try {
    store.get(sample_spec(), "sm_90a");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    const std::string text = error.what();
    for (const char* part : {"a<FORMAT=nvfp4,TILE=1>", "sm_90a", "no compiler here", "no kernel pack sm_90a.pack"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST_F(ImageStoreTest, AfterFreezeMemoryServesAndAMissThrowsBeforeTheDiskIsLookedAt) {
  ImageStore(options()).get(sample_spec("2"), "sm_90a");  // on disk, and so one look away
  write_pack();
  ImageStore store(options());
  store.get(sample_spec("3"), "sm_90a");
  store.freeze();
  EXPECT_TRUE(store.frozen());
  EXPECT_EQ(store.get(sample_spec("3"), "sm_90a").origin, ImageOrigin::memory);
  const auto used = fs::last_write_time(folder / "cache" / "kernels" / (sample_key("2").digest + ".kernel"));
  for (const char* value : {"1", "2"}) {
    try {
      store.get(sample_spec(value), "sm_90a");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find(sample_spec(value).name()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("warm_up"), std::string::npos) << "the remedy";
    }
  }
  EXPECT_EQ(fs::last_write_time(folder / "cache" / "kernels" / (sample_key("2").digest + ".kernel")), used);
  EXPECT_EQ(store.counters(), (ImageCounters{1, 0, 0, 1, 2}));
}

TEST_F(ImageStoreTest, AFrozenMissDoesNotWaitForACompileUnderWay) {
  compiler->hold = true;
  ImageStore store(options());
  std::thread slow([&] { store.get(sample_spec(), "sm_90a"); });
  while (compiler->compiles == 0) std::this_thread::yield();
  store.freeze();
  EXPECT_THROW(store.get(sample_spec(), "sm_90a"), Error);  // hangs if it waits: the compile ends only afterwards
  compiler->hold = false;
  slow.join();
  EXPECT_EQ(store.get(sample_spec(), "sm_90a").origin, ImageOrigin::memory) << "what was under way has finished";
}

TEST_F(ImageStoreTest, ConcurrentRequestsCompileOnce) {
  compiler->milliseconds = 50;
  ImageStoreOptions without_disk = options();
  without_disk.disk.enabled = false;
  ImageStore store(without_disk);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const std::string value = t % 2 == 0 ? "even" : "odd";
      right += *store.get(sample_spec(value), "sm_90a").image == image_of(sample_spec(value).name() + "sm_90a");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(compiler->compiles, 2);
  EXPECT_EQ(store.counters(), (ImageCounters{6, 0, 0, 2, 0}));
}

TEST_F(ImageStoreTest, AFailureReachesTheCallerAndIsTriedAgain) {
  compiler->failure = "line 7 is wrong";
  ImageStore store(options());
  for (int i = 0; i < 2; ++i) {
    try {
      store.get(sample_spec(), "sm_90a");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "line 7 is wrong");
    }
  }
  compiler->failure.clear();
  EXPECT_EQ(store.get(sample_spec(), "sm_90a").origin, ImageOrigin::compiled);
  EXPECT_EQ(compiler->compiles, 3);
}

TEST_F(ImageStoreTest, LocateChangesNothing) {
  ImageStore store(options());
  EXPECT_EQ(store.locate(sample_spec(), "sm_90a"), std::nullopt);
  ImageStore(options()).get(sample_spec(), "sm_90a");
  EXPECT_EQ(store.locate(sample_spec(), "sm_90a"), ImageOrigin::disk);
  store.get(sample_spec(), "sm_90a");
  EXPECT_EQ(store.locate(sample_spec(), "sm_90a"), ImageOrigin::memory);
  write_pack();
  EXPECT_EQ(ImageStore(options()).locate(sample_spec(), "sm_90a"), ImageOrigin::pack);
  EXPECT_EQ(store.counters(), (ImageCounters{0, 0, 1, 0, 0}));
  compiler->present = false;
  EXPECT_EQ(ImageStore(options()).locate(sample_spec("2"), "sm_90a"), std::nullopt);
}

TEST_F(ImageStoreTest, AnImageThatADeviceRefusesIsBuiltAgainOnce) {
  ImageStore(options()).get(sample_spec(), "sm_90a");
  ImageStore store(options());
  ASSERT_EQ(store.get(sample_spec(), "sm_90a").origin, ImageOrigin::disk);
  store.discard(sample_spec(), "sm_90a", "invalid image");
  EXPECT_EQ(store.get(sample_spec(), "sm_90a").origin, ImageOrigin::compiled);
  try {
    store.discard(sample_spec(), "sm_90a", "invalid image");
    FAIL() << "a second failure is an error, not a loop";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_NE(std::string(error.what()).find("invalid image"), std::string::npos);
  }
}

TEST(ImageStore, SettingsSayWherePacksAndCacheAre) {
  Settings settings;
  settings.kernel_dir = "/a/kernels";
  settings.cache_dir = "/a/cache";
  const ImageStoreOptions options = image_store_options(settings);
  EXPECT_EQ(options.sources, &SourceTree::embedded());
  EXPECT_EQ(options.pack_folders.front(), "/a/kernels");
  EXPECT_EQ(options.disk.folder, "/a/cache");
  EXPECT_NE(options.compiler, nullptr);
}

}  // namespace
}  // namespace fourfold::cuda
