// Commands of the shell, as the tests of tools run them.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace support {

struct ShellOutcome {
  int exit_code = -1;  ///< -1 when a signal ended it, or it did not start
  std::string text;    ///< stdout and stderr
};

inline ShellOutcome run_shell(const std::string& command) {
  ShellOutcome outcome;
  FILE* pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace support
