// The size limit, and what the command line does with a cache folder.
#include "disk_cache_fixture.h"

namespace fourfold::cuda {
namespace {

using DiskCacheMaintenance = DiskCacheTest;

// ---- size ------------------------------------------------------------------------------------------------------

TEST_F(DiskCacheMaintenance, TheLeastRecentlyUsedEntryGoesFirst) {
  DiskCache filling(options());
  for (const char* value : {"1", "2", "3"}) filling.find_or_build(sample_key(value), build());
  const std::uint64_t one = fs::file_size(entry(sample_key("1")));
  set_age(entry(sample_key("1")), 300);
  set_age(entry(sample_key("2")), 200);
  set_age(entry(sample_key("3")), 100);
  ASSERT_TRUE(filling.find(sample_key("1"))) << "a use makes it the youngest";
  DiskCacheOptions limited = options();
  limited.max_bytes = 3 * one;
  DiskCache cache(limited);
  cache.find_or_build(sample_key("4"), build());
  EXPECT_FALSE(cache.contains(sample_key("2")));
  for (const char* value : {"1", "3", "4"}) EXPECT_TRUE(cache.contains(sample_key(value))) << value;
  EXPECT_LE(cache.stat().bytes, 3 * one);
}

TEST_F(DiskCacheMaintenance, AnEntryLargerThanTheLimitIsNotWritten) {
  DiskCacheOptions tiny = options();
  tiny.max_bytes = 10;
  DiskCache cache(tiny);
  EXPECT_EQ(cache.find_or_build(sample_key(), build()).image, image_of("an image"));
  EXPECT_EQ(cache.stat().entries, 0u);
  EXPECT_TRUE(reports.texts().empty());
}

TEST_F(DiskCacheMaintenance, TrimRemovesWhatKilledProcessesLeft) {
  DiskCache cache(options());
  cache.find_or_build(sample_key(), build());
  const fs::path kernels = folder / "cache" / "kernels";
  const std::string partial = "." + sample_key().digest + ".kernel.partial-";
  write_bytes(kernels / (partial + "1"), "x");
  write_bytes(kernels / (partial + "2"), "x");
  write_bytes(kernels / "locks" / "dead", "");
  set_age(kernels / (partial + "1"), 4000);
  set_age(kernels / "locks" / "dead", 4000);
  EXPECT_EQ(cache.stat().partial_files, 2u);
  EXPECT_EQ(cache.trim(1u << 20).entries, 0u);
  EXPECT_FALSE(fs::exists(kernels / (partial + "1")));
  EXPECT_TRUE(fs::exists(kernels / (partial + "2"))) << "a young one may be in use";
  EXPECT_FALSE(fs::exists(kernels / "locks" / "dead"));
  EXPECT_TRUE(cache.contains(sample_key()));
}

// ---- for the command line --------------------------------------------------------------------------------------

TEST_F(DiskCacheMaintenance, StatVerifyAndClear) {
  DiskCache cache(options());
  EXPECT_EQ(cache.stat().entries, 0u);
  EXPECT_EQ(cache.clear().entries, 0u) << "a folder that is not there is empty";
  for (const char* value : {"1", "2"}) cache.find_or_build(sample_key(value), build());
  const CacheStatistics statistics = cache.stat();
  EXPECT_EQ(statistics.entries, 2u);
  EXPECT_EQ(statistics.bytes, fs::file_size(entry(sample_key("1"))) + fs::file_size(entry(sample_key("2"))));
  EXPECT_EQ(statistics.problem, "");
  write_bytes(entry(sample_key("1")), "{");
  CacheVerification verification = cache.verify();
  ASSERT_EQ(verification.valid.size(), 1u);
  EXPECT_EQ(verification.valid[0].kernel, "a<FORMAT=nvfp4,TILE=2>");
  EXPECT_EQ(verification.valid[0].architecture, "sm_90a");
  EXPECT_EQ(verification.valid[0].compiler, "pretended 1");
  ASSERT_EQ(verification.bad.size(), 1u);
  EXPECT_EQ(verification.bad[0].file, entry(sample_key("1")).string());
  EXPECT_EQ(cache.verify(true).bad.size(), 1u);
  EXPECT_EQ(cache.verify().bad.size(), 0u);
  const CacheRemoval removal = cache.clear();
  EXPECT_EQ(removal.entries, 1u);
  EXPECT_EQ(removal.entries_left, 0u);
  EXPECT_EQ(files(), 0u);
}

TEST_F(DiskCacheMaintenance, AnEntryUnderAnotherNameIsBad) {
  DiskCache cache(options());
  cache.find_or_build(sample_key("1"), build());
  fs::rename(entry(sample_key("1")), entry(sample_key("2")));
  EXPECT_EQ(cache.verify().bad.size(), 1u);
}

TEST_F(DiskCacheMaintenance, ExportAndImportCarryValidEntries) {
  DiskCache cache(options());
  for (const char* value : {"1", "2", "3"}) cache.find_or_build(sample_key(value), build(value));
  write_bytes(entry(sample_key("3")), "{");
  EXPECT_EQ(cache.export_to(folder / "carried"), 2u);
  write_bytes(folder / "carried" / (sample_key("4").digest + ".kernel"), "x");
  write_bytes(folder / "carried" / "notes.txt", "x");
  DiskCache other(options(folder / "other"));
  other.find_or_build(sample_key("1"), build("1"));
  const CacheImport result = other.import_from(folder / "carried");
  EXPECT_EQ(result.added, 1u);
  EXPECT_EQ(result.present, 1u);
  ASSERT_EQ(result.refused.size(), 1u);
  EXPECT_EQ(other.find(sample_key("2")), image_of("2"));
  EXPECT_THROW(other.import_from(folder / "none"), Error);
  EXPECT_THROW(cache.export_to(folder / "carried"), Error) << "never over what is there";
}

TEST_F(DiskCacheMaintenance, DropForgetsOneEntry) {
  DiskCache cache(options());
  for (const char* value : {"1", "2"}) cache.find_or_build(sample_key(value), build());
  cache.drop(sample_key("1"));
  EXPECT_FALSE(cache.contains(sample_key("1")));
  EXPECT_TRUE(cache.contains(sample_key("2")));
}

}  // namespace
}  // namespace fourfold::cuda
