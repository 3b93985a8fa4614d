// One holder at a time, and none that is dead.
#include "cuda/jit/file_lock.h"

#include <csignal>
#include <thread>

#include "jit_fixture.h"

namespace fourfold::cuda {
namespace {

TEST(FileLock, IsHeldByOneAndRemovedByIt) {
  const TemporaryFolder folder;
  const fs::path path = folder / "lock";
  std::string reason;
  {
    const auto lock = FileLock::acquire(path, FileLock::Wait::yes, reason);
    ASSERT_TRUE(lock);
    EXPECT_TRUE(fs::exists(path));
    EXPECT_FALSE(FileLock::acquire(path, FileLock::Wait::no, reason));
    EXPECT_EQ(reason, "") << "held by another is no failure";
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(FileLock::acquire(path, FileLock::Wait::no, reason));
}

TEST(FileLock, AFileWithoutAHolderIsNoLock) {
  const TemporaryFolder folder;
  write_bytes(folder / "lock", "x");
  std::string reason;
  EXPECT_TRUE(FileLock::acquire(folder / "lock", FileLock::Wait::no, reason));
}

TEST(FileLock, FailureHasAReason) {
  std::string reason;
  EXPECT_FALSE(FileLock::acquire("/nowhere/lock", FileLock::Wait::yes, reason));
  EXPECT_NE(reason.find("/nowhere/lock"), std::string::npos) << reason;
}

TEST(FileLock, ManyThreadsNeverMeetInside) {
  const TemporaryFolder folder;
  std::atomic<int> inside{0}, worst{0}, entered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        std::string reason;
        const auto lock = FileLock::acquire(folder / "lock", FileLock::Wait::yes, reason);
        if (!lock) return;
        const int now = ++inside;
        if (now > worst) worst = now;
        ++entered;
        std::this_thread::yield();
        --inside;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worst, 1);
  EXPECT_EQ(entered, 1600);
}

TEST(FileLock, AForkedChildDoesNotKeepIt) {
  const TemporaryFolder folder;
  std::string reason;
  pid_t child = 0;
  {
    const auto lock = FileLock::acquire(folder / "lock", FileLock::Wait::yes, reason);
    ASSERT_TRUE(lock);
    child = start_process([] {
      ::usleep(20'000'000);
      return 0;
    });
  }
  EXPECT_TRUE(FileLock::acquire(folder / "lock", FileLock::Wait::no, reason));
  ::kill(child, SIGKILL);
  wait_for(child);
}

TEST(FileLock, AWaitCanBeEnded) {
  const support::TemporaryFolder folder;
  std::string reason;
  std::optional<FileLock> held = FileLock::acquire(folder / "lock", FileLock::Wait::no, reason);
  ASSERT_TRUE(held);
  struct Ended {};
  int pauses = 0;
  const auto end_at_third = [&] {
    if (++pauses == 3) throw Ended{};
  };
  EXPECT_THROW(FileLock::acquire(folder / "lock", FileLock::Wait::yes, reason, end_at_third), Ended);
  EXPECT_EQ(pauses, 3);
  const auto let_go = [&] { held.reset(); };
  EXPECT_TRUE(FileLock::acquire(folder / "lock", FileLock::Wait::yes, reason, let_go));
}

}  // namespace
}  // namespace fourfold::cuda
