// One process and a cache folder that is damaged, closed, full or someone else's.
#include "cuda/jit/disk_cache.h"

#include <sys/resource.h>

#include <csignal>

#include "disk_cache_fixture.h"

namespace fourfold::cuda {
namespace {

TEST_F(DiskCacheTest, BuildsOnceAndReadsAfterwards) {
  const KernelKey key = sample_key();
  {
    DiskCache cache(options());
    EXPECT_FALSE(cache.find(key));
    EXPECT_FALSE(fs::exists(folder / "cache")) << "looking makes no folder";
    EXPECT_FALSE(cache.find_or_build(key, build()).from_disk);
    const DiskCache::Found second = cache.find_or_build(key, build());
    EXPECT_TRUE(second.from_disk);
    EXPECT_EQ(second.image, image_of("an image"));
  }
  DiskCache another(options());
  EXPECT_TRUE(another.contains(key));
  EXPECT_EQ(another.find(key), image_of("an image"));
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(files(), 1u) << "no lock and no partial file stays";
  EXPECT_TRUE(reports.texts().empty());
  struct stat info {};
  ASSERT_EQ(::stat((folder / "cache" / "kernels").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(DiskCacheTest, KeysDoNotMeet) {
  DiskCache cache(options());
  cache.find_or_build(sample_key("1"), build("one"));
  EXPECT_EQ(cache.find_or_build(sample_key("2"), build("two")).image, image_of("two"));
  EXPECT_EQ(cache.find(sample_key("1")), image_of("one"));
}

TEST_F(DiskCacheTest, AFailedBuildPublishesNothingAndItsTextArrives) {
  DiskCache cache(options());
  try {
    cache.find_or_build(sample_key(), []() -> Image { throw Error(ErrorCode::unsupported, "line 3: no"); });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "line 3: no");
  }
  EXPECT_EQ(files(), 0u);
  EXPECT_FALSE(cache.find_or_build(sample_key(), build()).from_disk) << "the lock is free again";
}

TEST_F(DiskCacheTest, AnEmptyImageIsAFailureThatIsNotPublished) {
  DiskCache cache(options());
  EXPECT_THROW(cache.find_or_build(sample_key(), [] { return Image(); }), Error);
  EXPECT_EQ(files(), 0u);
}

// A bad entry: dropped, reported once, rebuilt once, valid afterwards.
void expect_repair(DiskCacheTest& test, const KernelKey& key, const std::string& what) {
  Reports reports;
  DiskCacheOptions options = test.options();
  options.report = reports.sink();
  DiskCache cache(options);
  const int before = test.builds;
  const DiskCache::Found found = cache.find_or_build(key, test.build());
  ASSERT_EQ(found.image, image_of("an image")) << what;
  ASSERT_EQ(test.builds, before + 1) << what;
  ASSERT_EQ(reports.texts().size(), 1u) << what;
  ASSERT_NE(reports.texts()[0].find(key.digest), std::string::npos) << what << ": " << reports.texts()[0];
  ASSERT_TRUE(cache.find_or_build(key, test.build()).from_disk) << what;
  ASSERT_EQ(reports.texts().size(), 1u) << what;
}

/// A key with a short text, so that every length and every byte can be tried.
KernelKey short_key() {
  static const std::vector<SourceFile> files = {{"k.cu", ";"}};
  static const SourceTree tree(files);
  KernelSpec spec;
  spec.source = "k.cu";
  return kernel_key(tree, spec, {"sm_80", {}, "1"});
}

TEST_F(DiskCacheTest, EntriesCutAtEveryLengthAreRepaired) {
  const KernelKey key = short_key();
  DiskCache(options()).find_or_build(key, build());
  const std::string good = read_bytes(entry(key));
  ASSERT_GT(good.size(), 100u);
  for (std::size_t length = 0; length < good.size(); ++length) {
    write_bytes(entry(key), {good.begin(), good.begin() + static_cast<long>(length)});
    expect_repair(*this, key, std::to_string(length) + " bytes");
    if (HasFatalFailure()) return;
    ASSERT_EQ(read_bytes(entry(key)), good);
  }
}

TEST_F(DiskCacheTest, EveryFlippedByteIsRepaired) {
  const KernelKey key = short_key();
  DiskCache(options()).find_or_build(key, build());
  const std::string good = read_bytes(entry(key));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_bytes(entry(key), bad);
    expect_repair(*this, key, "byte " + std::to_string(at));
    if (HasFatalFailure()) return;
  }
}

TEST_F(DiskCacheTest, OtherContentsAreRepaired) {
  const KernelKey key = sample_key();
  DiskCache(options()).find_or_build(key, build());
  std::string longer = read_bytes(entry(key));
  longer.push_back('x');
  write_bytes(entry(key), longer);
  expect_repair(*this, key, "one byte more");
  write_bytes(entry(key), "{");
  expect_repair(*this, key, "a brace");
  DiskCache(options()).find_or_build(sample_key("2"), build("another"));
  fs::copy_file(entry(sample_key("2")), entry(key), fs::copy_options::overwrite_existing);
  expect_repair(*this, key, "a valid entry of another key");
}

// ---- folders that cannot be used: one warning, the same result, nothing thrown ----------------------------------

/// In a process bound by mode bits: 0 when two keys were built in memory with one warning that names the setting.
int works_in_memory(const DiskCacheOptions& base) {
  Reports reports;
  DiskCacheOptions options = base;
  options.report = reports.sink();
  DiskCache cache(options);
  for (const char* value : {"1", "2"}) {
    const DiskCache::Found found = cache.find_or_build(sample_key(value), [&] { return image_of(value); });
    if (found.from_disk || found.image != image_of(value)) return 1;
  }
  for (const std::string& text : reports.texts()) std::fprintf(stderr, "reported: %s\n", text.c_str());
  if (reports.texts().size() != 1) return 2;
  return reports.texts()[0].find("FOURFOLD_CACHE_DIR") == std::string::npos ? 3 : 0;
}

TEST_F(DiskCacheTest, NoFolderAtAllWorksInMemory) { EXPECT_EQ(works_in_memory(options("")), 0); }

TEST_F(DiskCacheTest, AFileInPlaceOfTheFolderWorksInMemory) {
  write_bytes(folder / "file", "x");
  EXPECT_EQ(works_in_memory(options(folder / "file")), 0);
  EXPECT_EQ(works_in_memory(options(folder / "file" / "below")), 0);
  EXPECT_EQ(read_bytes(folder / "file").size(), 1u);
}

TEST_F(DiskCacheTest, AReadOnlyParentWorksInMemory) {
  fs::create_directory(folder / "parent");
  EXPECT_EQ(run_as_user(folder / "parent",
                        [&] {
                          ::chmod((folder / "parent").c_str(), 0500);
                          return works_in_memory(options(folder / "parent" / "cache"));
                        }),
            0);
}

struct OpenTestFolder {
  explicit OpenTestFolder(const TemporaryFolder& folder) { ::chmod(folder.path().c_str(), 0755); }
};

TEST_F(DiskCacheTest, AReadOnlyCacheIsReadButNotWritten) {
  const OpenTestFolder open(folder);
  fs::create_directory(folder / "cache");
  EXPECT_EQ(run_as_user(folder / "cache",
                        [&] {
                          DiskCache(options()).find_or_build(sample_key("old"), build());
                          ::chmod((folder / "cache" / "kernels" / "locks").c_str(), 0500);
                          ::chmod((folder / "cache" / "kernels").c_str(), 0500);
                          DiskCache cache(options());
                          if (!cache.find_or_build(sample_key("old"), build()).from_disk) return 11;
                          if (!reports.texts().empty()) return 12;
                          return works_in_memory(options());
                        }),
            0);
}

TEST_F(DiskCacheTest, AFolderThatOthersCanEnterIsClosed) {
  fs::create_directories(folder / "cache" / "kernels");
  ::chmod((folder / "cache" / "kernels").c_str(), 0755);
  DiskCache(options()).find_or_build(sample_key(), build());
  EXPECT_EQ(fs::status(folder / "cache" / "kernels").permissions(), fs::perms::owner_all);
}

TEST_F(DiskCacheTest, AFolderThatOthersCanWriteToIsRefused) {
  const OpenTestFolder open(folder);
  for (const mode_t mode : {mode_t{0777}, mode_t{0770}, mode_t{0702}, mode_t{01777}})
    for (const bool inner : {false, true}) {
      fs::create_directories(folder / "cache" / "kernels");
      const fs::path target = inner ? folder / "cache" / "kernels" : folder / "cache";
      ::chmod((folder / "cache").c_str(), 0755);
      ::chmod((folder / "cache" / "kernels").c_str(), 0700);
      ASSERT_EQ(::chmod(target.c_str(), mode), 0);
      EXPECT_EQ(works_in_memory(options()), 0) << std::oct << mode << (inner ? " inside" : "");
      EXPECT_EQ(files(), 0u);
      struct stat info {};
      ASSERT_EQ(::stat(target.c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 07777, mode) << "what may be planted already is not made respectable";
    }
}

TEST_F(DiskCacheTest, AnEntryPlantedInAnOpenFolderIsNotRead) {
  DiskCache(options()).find_or_build(sample_key(), build("planted"));
  ::chmod((folder / "cache").c_str(), 0777);
  DiskCache cache(options());
  EXPECT_FALSE(cache.find(sample_key()));
  EXPECT_EQ(cache.find_or_build(sample_key(), build("ours")).image, image_of("ours"));
}

TEST_F(DiskCacheTest, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(folder / "cache");
  ASSERT_EQ(::chown((folder / "cache").c_str(), 12345, 12345), 0);
  EXPECT_EQ(works_in_memory(options()), 0);
}

// No space left: a limit on the size of files makes the same write fail, without a file system of our own.
TEST_F(DiskCacheTest, AFullDiskWorksInMemoryAndLeavesNothing) {
  const pid_t child = start_process([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64, 64};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 20;
    return works_in_memory(options());
  });
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(files(), 0u);
}

TEST_F(DiskCacheTest, TurnedOffItNeitherReadsNorWritesNorWarns) {
  DiskCache(options()).find_or_build(sample_key(), build("old"));
  DiskCacheOptions off = options();
  off.enabled = false;
  DiskCache cache(off);
  EXPECT_FALSE(cache.find_or_build(sample_key(), build()).from_disk);
  EXPECT_FALSE(cache.contains(sample_key()));
  EXPECT_THROW(cache.clear(), Error);
  EXPECT_TRUE(reports.texts().empty());
}

TEST_F(DiskCacheTest, SettingsFillTheOptions) {
  Settings settings;
  settings.cache_dir = "/a/b";
  settings.cache_max_bytes = 12;
  settings.no_disk_cache = true;
  const DiskCacheOptions options = disk_cache_options(settings);
  EXPECT_EQ(options.folder, "/a/b");
  EXPECT_EQ(options.max_bytes, 12u);
  EXPECT_FALSE(options.enabled);
}

}  // namespace
}  // namespace fourfold::cuda
