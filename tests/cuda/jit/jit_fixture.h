// What tests of the kernel caches share: a folder of their own, small sources, a compiler that only pretends,
// processes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/jit/compiler.h"
#include "cuda/jit/kernel_key.h"
#include "fourfold/error.h"
#include "support/files.h"
#include "support/temporary_folder.h"

namespace fourfold::cuda {

namespace fs = std::filesystem;

using support::read_bytes;
using support::TemporaryFolder;
using support::write_bytes;

inline Image image_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

/// A kernel with a header two levels down.
inline const std::vector<SourceFile>& sample_files() {
  static const std::vector<SourceFile> files = {
      {"moe/a.cu", "#include \"device/one.cuh\"\nextern \"C\" __global__ void a() {}\n"},
      {"device/one.cuh", "#include \"device/two.cuh\"\n"},
      {"device/two.cuh", "// two\n"},
      {"moe/b.cu", "extern \"C\" __global__ void b() {}\n"}};
  return files;
}

inline const SourceTree& sample_tree() {
  static const SourceTree tree(sample_files());
  return tree;
}

inline KernelSpec sample_spec(const std::string& value = "1") {
  KernelSpec spec;
  spec.source = "moe/a.cu";
  spec.defines = {{"FORMAT", "nvfp4"}, {"TILE", value}};
  return spec;
}

inline KernelTarget sample_target() { return {"sm_90a", compile_options(), "pretended 1"}; }

inline KernelKey sample_key(const std::string& value = "1") {
  return kernel_key(sample_tree(), sample_spec(value), sample_target());
}

/// Gives the kernel's name as its image; counts, waits and fails as told.
class PretendingCompiler : public KernelCompiler {
 public:
  std::atomic<int> compiles{0};
  std::string version = "pretended 1";
  int milliseconds = 0;
  std::atomic<bool> hold{false};  // a compile does not end while it is set
  std::string failure;            // thrown unless empty
  bool present = true;

  KernelTarget target(const std::string& architecture) override {
    if (!present) throw Error(ErrorCode::unavailable, "no compiler here");
    return {architecture, compile_options(), version};
  }
  Image compile(const KernelSpec& spec, const std::string& architecture) override {
    ++compiles;
    ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
    while (hold) ::usleep(1000);
    if (!failure.empty()) throw Error(ErrorCode::unsupported, failure);
    return image_of(spec.name() + architecture);
  }
};

/// Collects what a cache reports. Thread-safe.
class Reports {
 public:
  std::function<void(std::string_view)> sink() {
    return [this](std::string_view text) {
      const std::lock_guard lock(mutex_);
      texts_.emplace_back(text);
    };
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// Runs `body` in a process of its own; its exit status is what `body` returns, or 99 when it throws. A failed EXPECT
/// in the child is lost: return numbers.
inline pid_t start_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 99;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::_exit(status);
}

/// The exit status; -1 for a process that was killed.
inline int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Runs `body` as a user whom mode bits bind: a child process which, when we are root, becomes "nobody".
inline int run_as_user(const fs::path& folder, const std::function<int()>& body) {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0 && ::chown(folder.c_str(), kNobody, kNobody) != 0) return 98;
  return wait_for(start_process([&] {
    if (::geteuid() == 0 && (::setegid(kNobody) != 0 || ::seteuid(kNobody) != 0)) return 97;
    return body();
  }));
}

/// Number of calls from any process: one byte in a file each.
inline void count_call(const fs::path& counter) {
  const int file = ::open(counter.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || ::write(file, "x", 1) != 1) throw std::runtime_error("cannot count");
  ::close(file);
}
inline std::uintmax_t calls(const fs::path& counter) { return fs::exists(counter) ? fs::file_size(counter) : 0; }

}  // namespace fourfold::cuda
