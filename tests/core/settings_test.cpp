// The environment fills Settings; a value that does not parse names itself and what is allowed.
#include "fourfold/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "core/file.h"
#include "core/log.h"
#include "fourfold/error.h"

namespace fourfold {
namespace {

constexpr const char* kNames[] = {"FOURFOLD_LOG",
                                  "FOURFOLD_LOG_FILE",
                                  "FOURFOLD_CACHE_DIR",
                                  "FOURFOLD_CACHE_MAX_BYTES",
                                  "FOURFOLD_NO_DISK_CACHE",
                                  "FOURFOLD_KERNEL_DIR",
                                  "FOURFOLD_JIT_DUMP",
                                  "FOURFOLD_CPU_ISA",
                                  "FOURFOLD_THREADS",
                                  "XDG_CACHE_HOME",
                                  "HOME",
                                  "FOURFOLD_THRAEDS"};

struct SettingsFromEnvironment : testing::Test {
  std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : kNames) unsetenv(name);
    setenv("HOME", home.c_str(), 1);
  }
};

void expect_refused(const char* name, const char* value, const char* allowed) {
  setenv(name, value, 1);
  try {
    settings_from_environment();
    ADD_FAILURE() << name << "=" << value << " was accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::usage);
    for (const char* part : {name, value, allowed}) EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  unsetenv(name);
}

TEST_F(SettingsFromEnvironment, EmptyEnvironmentGivesTheDefaults) {
  const Settings settings = settings_from_environment(), defaults;
  EXPECT_EQ(settings.log_level, defaults.log_level);
  EXPECT_EQ(settings.log_file, "");
  EXPECT_EQ(settings.cache_dir, "");
  EXPECT_EQ(settings.cache_max_bytes, defaults.cache_max_bytes);
  EXPECT_FALSE(settings.no_disk_cache);
  EXPECT_EQ(settings.cpu_isa, "native");
  EXPECT_EQ(settings.threads, 0);
}

TEST_F(SettingsFromEnvironment, EveryNameReachesItsField) {
  setenv("FOURFOLD_LOG", "debug", 1);
  setenv("FOURFOLD_CACHE_DIR", "/c", 1);
  setenv("FOURFOLD_CACHE_MAX_BYTES", "18446744073709551615", 1);
  setenv("FOURFOLD_NO_DISK_CACHE", "1", 1);
  setenv("FOURFOLD_KERNEL_DIR", "/k", 1);
  setenv("FOURFOLD_JIT_DUMP", "/j", 1);
  setenv("FOURFOLD_CPU_ISA", "avx512_bf16", 1);
  setenv("FOURFOLD_THREADS", "3", 1);
  const Settings settings = settings_from_environment();
  EXPECT_EQ(settings.log_level, "debug");
  EXPECT_EQ(settings.cache_dir, "/c");
  EXPECT_EQ(settings.cache_max_bytes, std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(settings.no_disk_cache);
  EXPECT_EQ(settings.kernel_dir, "/k");
  EXPECT_EQ(settings.jit_dump, "/j");
  EXPECT_EQ(settings.cpu_isa, "avx512_bf16");
  EXPECT_EQ(settings.threads, 3);
}

TEST_F(SettingsFromEnvironment, BadValuesNameThemselvesAndWhatIsAllowed) {
  expect_refused("FOURFOLD_LOG", "verbose", "trace, debug, info, warn, error, off");
  expect_refused("FOURFOLD_CPU_ISA", "avx2 ", "portable, avx2, avx512, avx512_bf16");
  expect_refused("FOURFOLD_NO_DISK_CACHE", "yes", "0, 1");
  for (const char* value : {"-1", "2x", " 2", "4097", "1e3", "99999999999999999999", "0x4"})
    expect_refused("FOURFOLD_THREADS", value, "0 .. 4096");
  for (const char* value : {"-1", "1G", "18446744073709551616"})
    expect_refused("FOURFOLD_CACHE_MAX_BYTES", value, "bytes");
}

TEST_F(SettingsFromEnvironment, EmptyValuesMeanUnset) {
  for (const char* name : kNames) setenv(name, "", 1);
  unsetenv("FOURFOLD_THRAEDS");
  EXPECT_EQ(settings_from_environment().cpu_isa, "native");
}

TEST_F(SettingsFromEnvironment, CacheFolderFollowsTheXdgRules) {
  setenv("HOME", "/h", 1);
  EXPECT_EQ(settings_from_environment().cache_dir, "/h/.cache/fourfold");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(settings_from_environment().cache_dir, "/h/.cache/fourfold");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(settings_from_environment().cache_dir, "/x/fourfold");
  setenv("FOURFOLD_CACHE_DIR", "/mine", 1);
  EXPECT_EQ(settings_from_environment().cache_dir, "/mine");
}

TEST_F(SettingsFromEnvironment, UnknownNamesAreWarnedAboutOnce) {
  // In a process of its own, where nothing has asked for the settings before.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("FOURFOLD_THRAEDS", "2", 1);
  const auto twice = [] {
    settings_from_environment();
    settings_from_environment();
    std::exit(0);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(0), "FOURFOLD_THRAEDS is no setting");
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "fourfold_settings_test.txt";
  std::filesystem::remove(file);
  setenv("FOURFOLD_LOG_FILE", file.c_str(), 1);
  EXPECT_EXIT(twice(), testing::ExitedWithCode(0), "");
  const std::string text = read_text_file(file, 1 << 20);
  const std::size_t first = text.find("FOURFOLD_THRAEDS");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("FOURFOLD_THRAEDS", first + 1), std::string::npos) << text;
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace fourfold
