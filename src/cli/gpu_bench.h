// bench moe on a GPU: what to measure, and what to do with the results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_cases.h"

namespace fourfold::cli {

struct GpuBenchOptions {
  CaseOptions cases;
  std::string device;
  int replays = 31, warm_up = 3;
  double pause_ms = 3;
  int weight_sets = 0, calls = 0;
  std::optional<double> floor_tb_per_s, floor_tflop_per_s;
  std::string compare;          ///< a report; empty: none
  double noise_percent = 1;     ///< least noise of a comparison
  std::vector<std::string> ab;  ///< words of a, words of b
  bool variants = false;
  bool json = false;
};

/// Exit code: 0, or 6 when something got slower. Throws as GpuBenchmark and compare_reports do.
int run_gpu_bench(const GpuBenchOptions& options);

}  // namespace fourfold::cli
