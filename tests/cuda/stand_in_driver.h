// A test's view of the stand-in driver: steering it, reading its log, and finding nothing left behind.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/dynamic_library.h"
#include "cuda/driver_api.h"
#include "cuda/handles.h"
#include "cuda/stand_in/stand_in.h"
#include "plan/kernel_spec.h"

namespace fourfold::cuda {

/// The control functions of the stand-in, whose names are those of stand_in.h.
class StandInControl {
 public:
  static const StandInControl& get() {
    static const StandInControl control;
    return control;
  }
  decltype(&stand_in_reset) reset;
  decltype(&stand_in_forget) forget;
  decltype(&stand_in_set_device_count) set_device_count;
  decltype(&stand_in_set_attribute) set_attribute;
  decltype(&stand_in_set_memory_limit) set_memory_limit;
  decltype(&stand_in_set_strict_module_load) set_strict_module_load;
  decltype(&stand_in_set_launch_us) set_launch_us;
  decltype(&stand_in_fail) fail;
  decltype(&stand_in_failures_left) failures_left;
  decltype(&stand_in_call_count) call_count;
  decltype(&stand_in_get_call) get_call;
  decltype(&stand_in_get_params) get_params;
  decltype(&stand_in_live) live;
  decltype(&stand_in_memory_used) memory_used;
  decltype(&stand_in_thread_mode) thread_mode;
  decltype(&stand_in_context_depth) context_depth;
  decltype(&stand_in_management_sessions) management_sessions;

  /// Calls from number `begin` on.
  std::vector<StandInCall> calls(std::uint64_t begin = 0) const {
    std::vector<StandInCall> all;
    StandInCall call{};
    for (std::uint64_t i = begin; get_call(i, &call); ++i) all.push_back(call);
    return all;
  }
  /// Calls of `name` from number `begin` on.
  int count(const std::string& name, std::uint64_t begin = 0) const {
    int found = 0;
    for (const StandInCall& call : calls(begin)) found += name == call.name;
    return found;
  }

 private:
  StandInControl() : library_(DynamicLibrary::open(std::array{std::string(FOURFOLD_STAND_IN_CUDA)})) {
    load(reset, "stand_in_reset");
    load(forget, "stand_in_forget");
    load(set_device_count, "stand_in_set_device_count");
    load(set_attribute, "stand_in_set_attribute");
    load(set_memory_limit, "stand_in_set_memory_limit");
    load(set_strict_module_load, "stand_in_set_strict_module_load");
    load(set_launch_us, "stand_in_set_launch_us");
    load(fail, "stand_in_fail");
    load(failures_left, "stand_in_failures_left");
    load(call_count, "stand_in_call_count");
    load(get_call, "stand_in_get_call");
    load(get_params, "stand_in_get_params");
    load(live, "stand_in_live");
    load(memory_used, "stand_in_memory_used");
    load(thread_mode, "stand_in_thread_mode");
    load(context_depth, "stand_in_context_depth");
    load(management_sessions, "stand_in_management_sessions");
  }
  template <class Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(library_.symbol(name));
  }
  DynamicLibrary library_;
};

/// A test on the stand-in driver. At its end nothing may be alive, current, injected or relaxed.
class StandInTest : public testing::Test {
 protected:
  void SetUp() override {
    control_.reset();
    driver_ = DriverApi::open(FOURFOLD_STAND_IN_CUDA);
  }
  void TearDown() override {
    driver_.reset();
    expect_nothing_left();
  }
  void expect_nothing_left() const {
    for (const char* kind : {"context", "stream", "event", "module", "memory", "host", "graph", "graph_exec"})
      EXPECT_EQ(control_.live(kind), 0) << kind;
    EXPECT_EQ(control_.failures_left(), 0);
    EXPECT_EQ(control_.thread_mode(), 0);
    EXPECT_EQ(control_.context_depth(), 0);
  }
  ContextRef context(int ordinal = 0) const { return Context::retain(driver_, ordinal); }

  const StandInControl& control_ = StandInControl::get();
  std::shared_ptr<const DriverApi> driver_;
};

/// Expects `action` to throw Error{code} whose text has every one of `parts`.
inline void expect_error(ErrorCode code, const std::vector<std::string>& parts, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    return;
  }
  ADD_FAILURE() << "nothing was thrown" << (parts.empty() ? "" : ", expected: " + parts.front());
}

/// An image of the stand-in's with one function; `attributes` as in "static_shared=1024 max_threads=256".
inline std::vector<std::byte> stand_in_image(const std::string& entry, const std::string& attributes = "") {
  const std::string text = "fourfold stand-in module\nentry " + entry + " " + attributes + "\n";
  std::vector<std::byte> image(text.size() + 1);
  std::memcpy(image.data(), text.c_str(), image.size());
  return image;
}

/// A kernel instance named scale<N=number>.
inline KernelSpec test_spec(int number = 0) {
  KernelSpec spec;
  spec.source = "testing/scale.cu";
  spec.defines = {{"N", std::to_string(number)}};
  spec.block_threads = 128;
  spec.shared_bytes = 0;
  return spec;
}

}  // namespace fourfold::cuda
