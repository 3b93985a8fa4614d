// Times the probe bodies on all threads.
#include "cpu/probe.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "core/check.h"
#include "cpu/isa.h"
#include "cpu/probe_bodies.h"

namespace fourfold::cpu {
namespace {

constexpr std::int64_t kReadBytes = std::int64_t{1} << 30;
constexpr std::int64_t kUnit = 4096;
constexpr int kPasses = 5;
constexpr std::int64_t kRounds = 400'000;  // a few milliseconds

ProbeBodies bodies_of(CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::avx512_bf16:
      return probe_bodies_avx512_bf16();
    case CpuIsa::avx512:
      return probe_bodies_avx512();
    case CpuIsa::avx2:
      return probe_bodies_avx2();
    case CpuIsa::portable:
      break;
  }
#else
  (void)isa;
#endif
  return probe_bodies_portable();
}

/// Seconds from the moment all threads are ready to the moment the last one is done; the best of kPasses.
template <class Body>
double best_seconds(int threads, const Body& body) {
  double best = 1e30;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::chrono::steady_clock::time_point begin, end;
#pragma omp parallel num_threads(threads)
    {
#pragma omp barrier
#pragma omp master
      begin = std::chrono::steady_clock::now();
      body(omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
#pragma omp master
      end = std::chrono::steady_clock::now();
    }
    best = std::min(best, std::chrono::duration<double>(end - begin).count());
  }
  return best;
}

struct Unmap {
  void operator()(std::uint8_t* data) const noexcept { munmap(data, static_cast<std::size_t>(kReadBytes)); }
};

double read_gb_per_s(const ProbeBodies& bodies, int threads, std::atomic<std::uint32_t>& sink) {
  void* const mapped =
      mmap(nullptr, static_cast<std::size_t>(kReadBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(mapped != MAP_FAILED, ErrorCode::unavailable, "bandwidth probe: no memory for {} bytes; free some", kReadBytes);
  const std::unique_ptr<std::uint8_t, Unmap> data(static_cast<std::uint8_t*>(mapped));
  (void)madvise(mapped, static_cast<std::size_t>(kReadBytes), MADV_HUGEPAGE);
  const auto part = [&](int thread, int count, auto&& use) {
    const std::int64_t units = kReadBytes / kUnit;
    const std::int64_t first = units * thread / count * kUnit, last = units * (thread + 1) / count * kUnit;
    use(data.get() + first, last - first);
  };
#pragma omp parallel num_threads(threads)
  part(omp_get_thread_num(), omp_get_num_threads(), [](std::uint8_t* begin, std::int64_t bytes) {
    std::fill_n(begin, bytes, std::uint8_t{1});  // real pages, touched by the thread that will read them
  });
  const double seconds = best_seconds(threads, [&](int thread, int count) {
    part(thread, count, [&](const std::uint8_t* begin, std::int64_t bytes) { sink += bodies.read(begin, bytes); });
  });
  return static_cast<double>(kReadBytes) / seconds * 1e-9;
}

double gflop_per_s(float (*multiply)(std::int64_t), std::int64_t operations_per_round, int threads,
                   std::atomic<std::uint32_t>& sink) {
  std::atomic<int> team{threads};
  const double seconds = best_seconds(threads, [&](int thread, int count) {
    if (thread == 0) team = count;
    sink += multiply(kRounds) > 0.0f;
  });
  return static_cast<double>(kRounds * operations_per_round) * team / seconds * 1e-9;
}

}  // namespace

Probes measure(const Device& device) {
  const ProbeBodies bodies = bodies_of(device.isa);
  // The multiply rate is that of the kernels in use; memory is read with the widest loads there are.
  const ProbeBodies widest = bodies_of(detected_isa());
  std::atomic<std::uint32_t> sink{0};
  Probes probes;
  probes.read_gb_per_s = read_gb_per_s(widest, device.threads, sink);
  probes.f32_gflop_per_s = gflop_per_s(bodies.multiply_f32, bodies.f32_operations_per_round, device.threads, sink);
  probes.bf16_gflop_per_s =
      bodies.multiply_bf16 ? gflop_per_s(bodies.multiply_bf16, bodies.bf16_operations_per_round, device.threads, sink)
                           : probes.f32_gflop_per_s;
  return probes;
}

}  // namespace fourfold::cpu
