// Packs: what was built is found, and a stale, damaged or foreign one is named and not used.
#include "cuda/jit/kernel_pack.h"

#include "cuda/jit/record.h"
#include "jit_fixture.h"

namespace fourfold::cuda {
namespace {

KernelSpec other_spec() {
  KernelSpec spec;
  spec.source = "moe/b.cu";
  return spec;
}

KernelPackWriter sample_pack() {
  KernelPackWriter writer(sample_tree(), sample_target());
  writer.add(sample_spec("1"), image_of("one"));
  writer.add(sample_spec("2"), image_of("two"));
  writer.add(other_spec(), image_of("b"));
  return writer;
}

/// The sample's sources with one of them changed.
std::vector<SourceFile> changed_files(std::string_view path, std::string_view text) {
  std::vector<SourceFile> files = sample_files();
  for (SourceFile& file : files)
    if (file.path == path) file.text = text;
  return files;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(KernelPack, KernelsAreFoundByWhatTheyAre) {
  const TemporaryFolder folder;
  sample_pack().write(folder / "sm_90a.pack");
  const KernelPack pack = KernelPack::open(folder / "sm_90a.pack");
  EXPECT_EQ(pack.kernels().size(), 3u);
  EXPECT_EQ(pack.target(), sample_target());
  EXPECT_EQ(pack.stale_reason(sample_tree(), "sm_90a"), "");
  ASSERT_TRUE(pack.find(sample_tree(), sample_spec("2")));
  EXPECT_EQ(text_of(*pack.find(sample_tree(), sample_spec("2"))), "two");
  EXPECT_EQ(text_of(*pack.find(sample_tree(), other_spec())), "b");
  EXPECT_FALSE(pack.find(sample_tree(), sample_spec("3")));
}

TEST(KernelPack, ViewsSurviveAMove) {
  KernelPack first = KernelPack::decode(sample_pack().encode());
  const KernelPack second = std::move(first);
  EXPECT_EQ(text_of(*second.find(sample_tree(), sample_spec("1"))), "one");
}

TEST(KernelPack, TheOrderOfAddingDoesNotMatter) {
  KernelPackWriter writer(sample_tree(), sample_target());
  writer.add(other_spec(), image_of("b"));
  writer.add(sample_spec("2"), image_of("two"));
  writer.add(sample_spec("1"), image_of("one"));
  EXPECT_EQ(writer.encode(), sample_pack().encode());
}

TEST(KernelPack, SourcesAreStoredOnce) {
  const std::string big(100'000, ' ');
  const auto files = changed_files("moe/b.cu", big);
  const SourceTree tree(files);
  KernelPackWriter writer(tree, sample_target());
  for (const char* value : {"1", "2", "3", "4"}) {
    KernelSpec spec = other_spec();
    spec.defines = {{"TILE", value}};
    writer.add(spec, image_of(value));
  }
  EXPECT_LT(writer.encode().size(), 110'000u);
}

TEST(KernelPack, OneKernelTwiceOrEmptyIsRefused) {
  KernelPackWriter writer = sample_pack();
  EXPECT_THROW(writer.add(other_spec(), image_of("b")), Error);
  EXPECT_THROW(writer.add(sample_spec("3"), {}), Error);
}

TEST(KernelPack, EveryCutAndEveryFlippedByteIsNoticed) {
  const std::vector<std::byte> good = sample_pack().encode();
  ASSERT_NO_THROW(KernelPack::decode(good));
  for (std::size_t at = 0; at < good.size(); ++at) {
    EXPECT_THROW(KernelPack::decode({good.begin(), good.begin() + static_cast<long>(at)}), Error) << at << " bytes";
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{1};
    EXPECT_THROW(KernelPack::decode(bad), Error) << "byte " << at;
  }
}

// Sealed, so the digest of the file is right: bounds and inner digests must hold on their own.
TEST(KernelPack, SealedNonsenseIsRefused) {
  const auto pack_with = [](std::uint64_t kernels, std::uint64_t source, const char* key, const char* image_digest) {
    RecordWriter writer("4FPACK01");
    writer.text("sm_90a");
    writer.number(0);
    writer.text("pretended 1");
    writer.text("digest");
    writer.number(1);
    writer.text("sources");
    writer.number(kernels);
    writer.text("moe/a.cu");
    writer.number(0);
    writer.number(source);
    writer.text("instance");
    writer.text(key);
    writer.text(image_digest);
    writer.bytes(image_of("image"));
    return writer.seal();
  };
  const auto failure_of = [](const std::vector<std::byte>& file) -> std::string {
    try {
      KernelPack::decode(file);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_NE(failure_of(pack_with(1, 0, "none", "none")).find("key of kernel a"), std::string::npos);
  EXPECT_NE(failure_of(pack_with(1, 1, "none", "none")).find("source text 1 of 1"), std::string::npos);
  EXPECT_NE(failure_of(pack_with(1ull << 60, 0, "none", "none")).find("do not fit"), std::string::npos);
}

TEST(KernelPack, StaleByAnyChangedSource) {
  const KernelPack pack = KernelPack::decode(sample_pack().encode());
  for (const char* path : {"moe/a.cu", "device/one.cuh", "device/two.cuh", "moe/b.cu"}) {
    std::string text(sample_tree().text(path));
    text += "// changed\n";
    const auto files = changed_files(path, text);
    const SourceTree tree(files);
    EXPECT_NE(pack.stale_reason(tree, "sm_90a").find("other sources"), std::string::npos) << path;
  }
  const std::vector<SourceFile> fewer = {{"moe/b.cu", sample_tree().text("moe/b.cu")}};
  EXPECT_NE(pack.stale_reason(SourceTree(fewer), "sm_90a").find("moe/a.cu"), std::string::npos);
}

TEST(KernelPack, StaleByArchitectureAndOptionsButNotByCompiler) {
  const KernelPack pack = KernelPack::decode(sample_pack().encode());
  EXPECT_NE(pack.stale_reason(sample_tree(), "sm_80").find("for sm_90a, not for sm_80"), std::string::npos);
  KernelTarget target = sample_target();
  target.options.emplace_back("-G");
  KernelPackWriter writer(sample_tree(), target);
  writer.add(other_spec(), image_of("b"));
  EXPECT_NE(KernelPack::decode(writer.encode()).stale_reason(sample_tree(), "sm_90a").find("-G"), std::string::npos);
  target = sample_target();
  target.compiler_version = "pretended 99";
  KernelPackWriter newer(sample_tree(), target);
  newer.add(other_spec(), image_of("b"));
  const KernelPack other = KernelPack::decode(newer.encode());
  EXPECT_EQ(other.stale_reason(sample_tree(), "sm_90a"), "");
  EXPECT_TRUE(other.find(sample_tree(), other_spec()));
}

TEST(KernelPack, SearchTakesTheFirstGoodOneAndNamesTheOthers) {
  const TemporaryFolder folder;
  for (const char* name : {"damaged", "stale", "good", "later"}) fs::create_directory(folder / name);
  write_bytes(folder / "damaged" / "sm_90a.pack", "{");
  const auto files = changed_files("moe/a.cu", "// old\n");
  const SourceTree old(files);
  KernelPackWriter stale(old, sample_target());
  stale.add(sample_spec(), image_of("stale"));
  stale.write(folder / "stale" / "sm_90a.pack");
  sample_pack().write(folder / "good" / "sm_90a.pack");
  sample_pack().write(folder / "later" / "sm_90a.pack");
  const std::vector<fs::path> folders = {folder / "none", folder / "damaged", folder / "stale", folder / "good",
                                         folder / "later"};
  const PackSearch search = find_pack(folders, sample_tree(), "sm_90a");
  ASSERT_TRUE(search.pack);
  EXPECT_EQ(search.pack->path(), folder / "good" / "sm_90a.pack");
  ASSERT_EQ(search.refused.size(), 2u);
  EXPECT_NE(search.refused[0].find((folder / "damaged").string()), std::string::npos) << search.refused[0];
  EXPECT_NE(search.refused[0].find("damaged: "), std::string::npos) << search.refused[0];
  EXPECT_NE(search.refused[1].find("stale: "), std::string::npos) << search.refused[1];
  EXPECT_FALSE(find_pack(folders, sample_tree(), "sm_80").pack);
}

TEST(KernelPack, IsFoundNextToTheProgram) {
  const std::vector<fs::path> folders = pack_folders("/a/b");
  ASSERT_GE(folders.size(), 2u);
  EXPECT_EQ(folders[0], "/a/b");
  EXPECT_EQ(folders[1], fs::read_symlink("/proc/self/exe").parent_path());
  EXPECT_EQ(pack_folders("").size() + 1, folders.size());
}

TEST(KernelPack, DigestCoversAllHeadersOnce) {
  const std::vector<KernelSpec> one = {sample_spec("1"), other_spec()}, same = {other_spec(), sample_spec("2")};
  EXPECT_EQ(sources_digest(sample_tree(), one), sources_digest(sample_tree(), same));
  EXPECT_NE(sources_digest(sample_tree(), one), sources_digest(sample_tree(), std::span(one).first(1)));
}

}  // namespace
}  // namespace fourfold::cuda
