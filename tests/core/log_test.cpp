// The log goes where settings say, at the level they say; a bad setting leaves the old one in force.
#include "core/log.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "fourfold/error.h"
#include "support/temporary_folder.h"

namespace fourfold {
namespace {

struct Log : testing::Test {
  support::TemporaryFolder folder;
  std::filesystem::path file = folder / "log.txt";
  void TearDown() override { configure_log(Settings{}); }
  Settings to_file(const char* level) const {
    Settings settings;
    settings.log_level = level;
    settings.log_file = file.string();
    return settings;
  }
  std::string text() const { return read_text_file(file, 1 << 20); }
};

TEST_F(Log, WritesToTheFileFromItsLevelOn) {
  configure_log(to_file("info"));
  log_debug("below 1");
  log_info("at 2");
  log_error("above 3");
  EXPECT_EQ(text().find("below 1"), std::string::npos);
  EXPECT_NE(text().find("at 2"), std::string::npos);
  EXPECT_NE(text().find("above 3"), std::string::npos);
}

TEST_F(Log, OffIsSilent) {
  configure_log(to_file("off"));
  log_error("nothing");
  EXPECT_EQ(text(), "");
}

TEST_F(Log, UnknownLevelIsRefusedAndTheOldOneStays) {
  configure_log(to_file("warn"));
  try {
    configure_log(to_file("loud"));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("'loud'"), std::string::npos) << error.what();
  }
  log_warn("still here");
  EXPECT_NE(text().find("still here"), std::string::npos);
}

TEST_F(Log, AFileThatCannotBeOpenedIsRefusedByName) {
  Settings settings;
  settings.log_file = "/dev/null/log.txt";
  try {
    configure_log(settings);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("/dev/null/log.txt"), std::string::npos) << error.what();
  }
}

TEST_F(Log, ConfigureOnceKeepsAnEarlierConfiguration) {
  configure_log(to_file("info"));
  Settings other;
  other.log_level = "off";
  configure_log_once(other);
  log_info("kept");
  EXPECT_NE(text().find("kept"), std::string::npos);
}

}  // namespace
}  // namespace fourfold
