// A folder for the files of one test.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

namespace support {

/// An empty folder of its own, which goes away with its owner, also when a test took away rights inside.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fourfold-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder at " + name);
    path_ = name;
  }
  ~TemporaryFolder() {
    namespace fs = std::filesystem;
    std::error_code ignored;
    ::chmod(path_.c_str(), 0700);
    for (fs::recursive_directory_iterator item(path_, ignored), end; item != end; item.increment(ignored))
      if (item->is_directory(ignored) && !item->is_symlink(ignored)) ::chmod(item->path().c_str(), 0700);
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string string() const { return path_.string(); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// The path of a file in it.
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  /// Writes that file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return file(name);
  }
  /// What lies in it, not deeper.
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) found.insert(entry.path().filename().string());
    return found;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace support
