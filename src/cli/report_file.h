// A report in a file: its place is checked before the work that it reports, and it is whole or not there.
#pragma once

#include <string>

namespace fourfold::cli {

class ReportFile {
 public:
  /// `option` names it in errors. Throws bad_input when no file can be made beside `path` (no such folder, no rights,
  /// no space), or when something that is no regular file is there; usage when `path` is empty. Leaves nothing.
  ReportFile(std::string option, std::string path);
  /// Writes aside and renames. Throws bad_input, and leaves what was at the path as it was.
  void write(const std::string& text) const;
  const std::string& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail(const std::string& reason) const;
  std::string option_, path_, aside_;
};

}  // namespace fourfold::cli
