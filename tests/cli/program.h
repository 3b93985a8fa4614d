// Runs the built program as a user does: arguments in, exit code, stdout and stderr out.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/temporary_folder.h"

extern char** environ;

namespace fourfold::cli_test {

inline const std::string kProgram = FOURFOLD_BINARY_DIR "/bin/fourfold";
inline const std::string kSource = FOURFOLD_SOURCE_DIR;
inline const std::string kData = FOURFOLD_SOURCE_DIR "/tests/data";
inline const std::string kTiny = kData + "/tiny/qwen3_moe";
inline const std::string kDemo = FOURFOLD_SOURCE_DIR "/models/moe-13m";

using support::read_bytes;
using support::TemporaryFolder;

struct Outcome {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string out, err;
};

/// Where the program's streams lead; empty is a file that run() reads back.
struct Streams {
  std::string in = "/dev/null";
  std::string out = {};
  bool out_is_closed_pipe = false;
};

inline Outcome run(const std::vector<std::string>& arguments, const Streams& streams = {}) {
  const TemporaryFolder folder;
  const std::string out = streams.out.empty() ? folder.file("out") : streams.out, err = folder.file("err");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, streams.in.c_str(), O_RDONLY, 0);
  int pipe_ends[2] = {-1, -1};
  if (streams.out_is_closed_pipe) {
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    close(pipe_ends[0]);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  }
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<char*> argv{const_cast<char*>(kProgram.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int failed = posix_spawn(&child, kProgram.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (pipe_ends[1] >= 0) close(pipe_ends[1]);
  Outcome outcome;
  if (failed != 0) {
    ADD_FAILURE() << kProgram << " does not start: error " << failed;
    return outcome;
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  if (streams.out.empty() && !streams.out_is_closed_pipe) outcome.out = read_bytes(out);
  outcome.err = read_bytes(err);
  return outcome;
}

/// The one JSON object that stdout must be: anything before or after it fails.
inline nlohmann::json only_object(const Outcome& outcome) {
  const nlohmann::json json = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << "stdout is not one JSON object:\n" << outcome.out << "\nstderr:\n" << outcome.err;
  return json.is_object() ? json : nlohmann::json::object();
}

inline std::set<std::string> keys(const nlohmann::json& object) {
  std::set<std::string> found;
  for (const auto& [key, value] : object.items()) found.insert(key);
  return found;
}

/// All case files of the repository, in order.
inline std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kData + "/cases"))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace fourfold::cli_test
