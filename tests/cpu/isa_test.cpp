// The choice of the instruction set: a cap is honoured, a reason is given, nonsense is refused.
#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fourfold/error.h"

namespace fourfold::cpu {
namespace {

TEST(Isa, EveryCapIsHonoured) {
  for (const CpuIsa cap : {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16}) {
    Settings settings;
    settings.cpu_isa = std::string(cpu_isa_name(cap));
    const Device device = cpu_device(settings);
    EXPECT_EQ(device.isa, std::min(cap, detected_isa())) << settings.cpu_isa;
    if (cap < detected_isa()) {
      EXPECT_EQ(device.isa_fallback_reason, "capped by FOURFOLD_CPU_ISA=" + settings.cpu_isa);
    }
  }
}

TEST(Isa, NativeIsTheQuickestAndSaysWhyNotWider) {
  const Device device = cpu_device(Settings{});
  bool intel = false;
#if defined(__x86_64__)
  __builtin_cpu_init();
  intel = __builtin_cpu_is("intel");
#endif
  EXPECT_EQ(device.isa, intel ? std::min(CpuIsa::avx512, detected_isa()) : detected_isa());
  EXPECT_EQ(device.isa_fallback_reason.empty(), device.isa == CpuIsa::avx512_bf16);
  EXPECT_GE(device.threads, 1);
  EXPECT_FALSE(device.name.empty());
}

TEST(Isa, UnknownCapIsRefusedWithTheChoices) {
  Settings settings;
  settings.cpu_isa = "avx1024";
  try {
    (void)cpu_device(settings);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("avx512_bf16"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("avx1024"), std::string::npos) << error.what();
  }
}

TEST(Isa, ThreadsComeFromSettings) {
  Settings settings;
  settings.threads = 3;
  EXPECT_EQ(cpu_device(settings).threads, 3);
}

#if defined(__x86_64__)
TEST(Isa, IeeeArithmeticRestoresTheCallersMode) {
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040u;  // flush to zero, subnormals are zero
  _mm_setcsr(flushing);
  unsigned inside = 0;
  {
    const IeeeArithmetic ieee;
    inside = _mm_getcsr();
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(inside & 0x8040u, 0u);
  EXPECT_EQ(after, flushing);
}
#endif

}  // namespace
}  // namespace fourfold::cpu
