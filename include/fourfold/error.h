// The one exception type of the library. Its codes are the exit codes of the command line.
#pragma once

#include <stdexcept>
#include <string>

namespace fourfold {

/// What went wrong, by who can fix it. The numeric value is the process exit code.
enum class ErrorCode : int {
  usage = 2,        ///< the caller's arguments are wrong: fix the call
  unsupported = 3,  ///< the plan was refused, or the feature does not exist: change the problem
  bad_input = 4,    ///< a file or tensor handed in is malformed: fix the data
  mismatch = 5,     ///< numbers differ from a reference
  regression = 6,   ///< a comparison against a baseline got worse
  unavailable = 7,  ///< no such device, driver or library on this machine
  internal = 70,    ///< a fault of ours
};

/// Every failure of the library. `what()` has the name, the value, the bound and the remedy.
/// Thread-safe to throw and copy.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const noexcept { return code_; }
  int exit_code() const noexcept { return static_cast<int>(code_); }

 private:
  ErrorCode code_;
};

}  // namespace fourfold
