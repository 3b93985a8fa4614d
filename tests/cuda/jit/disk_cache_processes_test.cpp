// Many processes on one cache folder: each key is built once, and a killed builder stops nobody.
#include <chrono>
#include <csignal>

#include "cuda/jit/disk_cache.h"
#include "cuda/jit/image_store.h"
#include "jit_fixture.h"
#include "scale_kernel.h"

namespace fourfold::cuda {
namespace {

constexpr int kProcesses = 8;

DiskCacheOptions options_for(const fs::path& folder) {
  return {folder, 1ull << 30, true, [](std::string_view) {}};
}

/// A build that counts itself and takes a while.
std::function<Image()> counted_build(const fs::path& counter, int milliseconds) {
  return [=] {
    count_call(counter);
    ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
    return image_of("an image");
  };
}

/// Starts the processes at the same moment; gives the sum of their exit statuses.
int run_together(const std::function<int()>& body) {
  int gate[2];
  if (::pipe(gate) != 0) return -1;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i)
    children.push_back(start_process([&] {
      ::close(gate[1]);
      char byte = 0;
      if (::read(gate[0], &byte, 1) != 0) return 90;  // ends when the parent closes its end
      return body();
    }));
  ::close(gate[0]);
  ::close(gate[1]);
  int sum = 0;
  for (const pid_t child : children) {
    const int status = wait_for(child);
    sum += status < 0 ? 1000 : status;
  }
  return sum;
}

TEST(DiskCacheProcesses, EightOnAnEmptyCacheBuildOnceInEachOfTwentyRounds) {
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const int failures = run_together([&] {
      DiskCache cache(options_for(folder / "cache"));
      const auto found = cache.find_or_build(sample_key(), counted_build(folder / "counter", 20));
      return found.image == image_of("an image") ? 0 : 1;
    });
    EXPECT_EQ(failures, 0) << "round " << round;
    EXPECT_EQ(calls(folder / "counter"), 1u) << "round " << round;
  }
}

TEST(DiskCacheProcesses, SeveralKeysAreBuiltOnceEach) {
  const TemporaryFolder folder;
  const int failures = run_together([&] {
    DiskCache cache(options_for(folder / "cache"));
    for (int key = 0; key < 10; ++key)
      if (cache.find_or_build(sample_key(std::to_string(key)), counted_build(folder / "counter", 1)).image.empty())
        return 1;
    return 0;
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(calls(folder / "counter"), 10u);
}

TEST(DiskCacheProcesses, AFailingBuildFailsInEachAndPublishesNothing) {
  const TemporaryFolder folder;
  const int threw = run_together([&] {
    DiskCache cache(options_for(folder / "cache"));
    try {
      cache.find_or_build(sample_key(), []() -> Image { throw Error(ErrorCode::unsupported, "no"); });
    } catch (const Error& error) {
      return std::string(error.what()) == "no" ? 1 : 100;
    }
    return 100;
  });
  EXPECT_EQ(threw, kProcesses);
  EXPECT_EQ(DiskCache(options_for(folder / "cache")).stat().entries, 0u);
}

TEST(DiskCacheProcesses, AKilledBuilderStopsNobody) {
  const TemporaryFolder folder;
  int started[2];
  ASSERT_EQ(::pipe(started), 0);
  const pid_t builder = start_process([&] {
    DiskCache cache(options_for(folder / "cache"));
    cache.find_or_build(sample_key(), [&]() -> Image {
      if (::write(started[1], "x", 1) != 1) return {};
      while (true) ::usleep(1'000'000);
    });
    return 0;
  });
  ::close(started[1]);
  char byte = 0;
  ASSERT_EQ(::read(started[0], &byte, 1), 1);
  // One waits for the lock already when its holder dies.
  const pid_t waiter = start_process([&] {
    DiskCache cache(options_for(folder / "cache"));
    return cache.find_or_build(sample_key(), counted_build(folder / "counter", 0)).image.empty() ? 1 : 0;
  });
  ::usleep(100'000);
  EXPECT_EQ(calls(folder / "counter"), 0u) << "the waiter did not wait";
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_EQ(::kill(builder, SIGKILL), 0);
  EXPECT_EQ(wait_for(builder), -1);
  EXPECT_EQ(wait_for(waiter), 0);
  DiskCache cache(options_for(folder / "cache"));
  EXPECT_TRUE(cache.find_or_build(sample_key(), counted_build(folder / "counter", 0)).from_disk);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(5));
  EXPECT_EQ(calls(folder / "counter"), 1u);
  ::close(started[0]);
}

// Killed at any moment, also between write and rename: what others find is whole or not there.
TEST(DiskCacheProcesses, KillsAtRandomMomentsLeaveNothingBad) {
  constexpr int kRounds = 40;
  const TemporaryFolder folder;
  for (int round = 0; round < kRounds; ++round) {
    int wrote[2];
    ASSERT_EQ(::pipe(wrote), 0);
    const pid_t writer = start_process([&] {
      DiskCache cache(options_for(folder / "cache"));
      for (int key = 0;; ++key) {
        cache.find_or_build(sample_key(std::to_string(round) + "_" + std::to_string(key)),
                            [] { return Image(100'000, std::byte{7}); });
        if (key == 0 && ::write(wrote[1], "x", 1) != 1) return 1;
      }
    });
    ::close(wrote[1]);  // so that the read ends when the writer dies
    char byte = 0;
    EXPECT_EQ(::read(wrote[0], &byte, 1), 1);
    ::usleep(static_cast<useconds_t>(200 * round));
    ::kill(writer, SIGKILL);
    EXPECT_EQ(wait_for(writer), -1);
    ::close(wrote[0]);
  }
  DiskCache cache(options_for(folder / "cache"));
  const CacheVerification verification = cache.verify();
  EXPECT_GE(verification.valid.size(), static_cast<std::size_t>(kRounds));
  EXPECT_TRUE(verification.bad.empty());
}

TEST(DiskCacheProcesses, EightWithTheRealCompilerCompileOnce) {
  try {
    NvrtcApi::open();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const TemporaryFolder folder;
  KernelSpec spec;
  spec.source = "testing/scale.cu";
  const int compiled = run_together([&] {
    ImageStoreOptions options;
    options.sources = &scale_tree();
    options.compiler = std::make_shared<NvrtcCompiler>(scale_tree());
    options.disk = options_for(folder / "cache");
    ImageStore store(options);
    if (store.get(spec, "sm_90a").image->size() < 500) return 100;
    const ImageCounters counters = store.counters();
    return counters.compiled + counters.disk == 1 ? static_cast<int>(counters.compiled) : 100;
  });
  EXPECT_EQ(compiled, 1);
}

}  // namespace
}  // namespace fourfold::cuda
