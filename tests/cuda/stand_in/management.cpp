// A management library beside the stand-in driver: fixed clocks of the stand-in's devices, by their PCI addresses.
#include <cstring>

#include "stand_in.h"

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotFound = 6, kUninitialised = 1;
constexpr unsigned int kSmMhz = 1935, kMilliwatts = 612'500;
constexpr unsigned long long kPowerCap = 0x4;
int sessions = 0;
int device = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++sessions;
  return kSuccess;
}

int nvmlShutdown() {
  if (sessions == 0) return kUninitialised;
  --sessions;
  return kSuccess;
}

int stand_in_management_sessions() { return sessions; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) {
  if (sessions == 0) return kUninitialised;
  if (std::strcmp(address, "0000:00:00.0") != 0 && std::strcmp(address, "0000:01:00.0") != 0) return kNotFound;
  *handle = &device;
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void* handle, int clock, unsigned int* mhz) {
  if (handle != &device || clock != 1) return kInvalidArgument;
  *mhz = kSmMhz;
  return kSuccess;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  if (handle != &device) return kInvalidArgument;
  *reasons = kPowerCap;
  return kSuccess;
}

int nvmlDeviceGetPowerUsage(void* handle, unsigned int* milliwatts) {
  if (handle != &device) return kInvalidArgument;
  *milliwatts = kMilliwatts;
  return kSuccess;
}
}
