// Reports beside their place first, so that a reader never sees half of one.
#include "report_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

namespace fs = std::filesystem;

/// Makes a file that was not there and fills it; errno says why it returns false, and nothing stays then.
bool create(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (written && closed) return true;
  if (!written) errno = error;
  const int kept = errno;
  ::unlink(path.c_str());
  errno = kept;
  return false;
}

}  // namespace

ReportFile::ReportFile(std::string option, std::string path)
    : option_(std::move(option)), path_(std::move(path)), aside_(fmt::format("{}.part-{}", path_, ::getpid())) {
  if (path_.empty()) throw Error(ErrorCode::usage, fmt::format("{} is empty; name a file", option_));
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) fail("it is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) fail("it is no regular file, and a report takes its place");
  if (!create(aside_, "\n")) fail(std::strerror(errno));
  ::unlink(aside_.c_str());
}

void ReportFile::write(const std::string& text) const {
  if (!create(aside_, text)) fail(std::strerror(errno));
  if (::rename(aside_.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  ::unlink(aside_.c_str());
  fail(std::strerror(error));
}

void ReportFile::fail(const std::string& reason) const {
  throw Error(ErrorCode::bad_input,
              fmt::format("{} {}: cannot be written: {}; name a file in a writable folder with free space", option_,
                          path_, reason));
}

}  // namespace fourfold::cli
