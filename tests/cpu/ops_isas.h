// The dense operations of every instruction set that this machine has, for parameterised tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cpu/ops_cpu.h"

namespace fourfold::test {

inline std::vector<CpuIsa> machine_isas() {
  std::vector<CpuIsa> isas{CpuIsa::portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(CpuIsa::avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    isas.push_back(CpuIsa::avx512);
    if (__builtin_cpu_supports("avx512bf16")) isas.push_back(CpuIsa::avx512_bf16);
  }
#endif
  return isas;
}

/// One instruction set with two threads.
class OpsTest : public ::testing::TestWithParam<CpuIsa> {
 protected:
  OpsTest() {
    Device device;
    device.isa = GetParam();
    device.threads = 2;
    ops = make_cpu_ops(device);
  }
  std::unique_ptr<Ops> ops;
};

inline std::string isa_of(const ::testing::TestParamInfo<CpuIsa>& info) {
  return std::string(cpu_isa_name(info.param));
}

/// Uniform in [-1, 1), the same on every machine.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  float operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<float>(static_cast<double>(state_ >> 40) / (1 << 23) - 1.0);
  }
  std::vector<float> vector(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = (*this)();
    return values;
  }

 private:
  std::uint64_t state_;
};

}  // namespace fourfold::test
