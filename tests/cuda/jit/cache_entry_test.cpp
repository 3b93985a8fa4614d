// One cache file: what goes in comes out, and nothing else passes for an entry.
#include "cuda/jit/cache_entry.h"

#include "cuda/jit/record.h"
#include "jit_fixture.h"

namespace fourfold::cuda {
namespace {

TEST(CacheEntry, ComesBackAsItWas) {
  const Entry entry = decode_entry(encode_entry({"key", image_of("image")}));
  EXPECT_EQ(entry.key_text, "key");
  EXPECT_EQ(entry.image, image_of("image"));
}

TEST(CacheEntry, AnEmptyImageIsNoEntry) { EXPECT_THROW(decode_entry(encode_entry({"key", {}})), Error); }

TEST(CacheEntry, FieldsBeyondTheImageAreRefused) {
  RecordWriter writer("4FKERNL1");
  writer.text("key");
  writer.bytes(image_of("image"));
  writer.text("more");
  EXPECT_THROW(decode_entry(writer.seal()), Error);
}

TEST(CacheEntry, MissingFilesAndFoldersAreErrors) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_entry_file(folder / "none"), Error);
  EXPECT_THROW(read_entry_file(folder.path()), Error);
}

}  // namespace
}  // namespace fourfold::cuda
