// The program on a machine with the stand-in driver (tests/cuda/stand_in/stand_in.h), as if it had two GPUs.
#pragma once

#include <cstring>
#include <optional>

#include "cuda/jit/kernel_pack.h"
#include "plan/kernel_catalog.h"
#include "program.h"

namespace fourfold::cli_test {

namespace fs = std::filesystem;

/// A variable of the environment that programs started meanwhile see.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      setenv(name_.c_str(), before_->c_str(), 1);
    else
      unsetenv(name_.c_str());
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

/// A driver that shows two GPUs and runs nothing, found by the loader as libcuda.so.1.
struct StandInGpu : testing::Test {
  TemporaryFolder folder;
  Variable path{"LD_LIBRARY_PATH", folder.file("")};
  void SetUp() override {
    fs::create_symlink(FOURFOLD_BINARY_DIR "/libfourfold_stand_in_cuda.so", folder.file("libcuda.so.1"));
  }
};

/// A pack of every kernel with code that the stand-in driver loads.
inline void write_stand_in_pack(const std::string& file) {
  const cuda::SourceTree& sources = cuda::SourceTree::embedded();
  cuda::KernelPackWriter writer(sources, {"sm_90a", cuda::compile_options(), "nvrtc 13.0"});
  for (const KernelSpec& spec : kernel_catalog("sm_90a")) {
    const std::string text = "fourfold stand-in module\nentry " + spec.entry() + " \n";
    cuda::Image image(text.size() + 1);
    std::memcpy(image.data(), text.c_str(), image.size());
    writer.add(spec, std::move(image));
  }
  writer.write(file);
}

}  // namespace fourfold::cli_test
