// fourfold bench: how long the operation takes here, against what the machine could do at most.
#include <fmt/format.h>

#include <cstdio>

#include "command.h"
#include "device_choice.h"
#include "fingerprint.h"
#include "fourfold_version.h"
#include "moe_benchmark.h"
#include "output.h"

namespace fourfold::cli {
namespace {

struct Options {
  std::string problem;
  std::string device = "cpu";
  int threads = 0;
  int calls = 0;
  int layers = 0;
  bool json = false;
};

void print_bench_json(const Problem& problem, const Device& device, const MoeBenchmarkResult& result,
                      const Fingerprint& fingerprint) {
  Json rows = Json::array();
  for (const MoeBenchmarkRow& row : result.rows)
    rows.push_back({{"tokens", row.tokens},
                    {"ms_p10", row.ms_p10},
                    {"ms_median", row.ms_median},
                    {"ms_p90", row.ms_p90},
                    {"weight_gb_per_s", row.weight_gb_per_s},
                    {"gflop_per_s", row.gflop_per_s},
                    {"floor_ms", row.floor_ms},
                    {"over_floor", row.over_floor},
                    {"workspace_bytes", row.workspace_bytes},
                    {"output_hash", fmt::format("{:016x}", row.output_hash)}});
  print_json({{"rows", std::move(rows)},
              {"probes",
               {{"read_gb_per_s", result.probes.read_gb_per_s},
                {"bf16_gflop_per_s", result.probes.bf16_gflop_per_s},
                {"f32_gflop_per_s", result.probes.f32_gflop_per_s}}},
              {"problem", problem_text(problem)},
              {"device", device.name},
              {"isa", cpu_isa_name(device.isa)},
              {"threads", device.threads},
              {"commit", FOURFOLD_COMMIT},
              {"fingerprint", fingerprint_json(fingerprint)}});
}

std::string bench_text(const Problem& problem, const Device& device, const MoeBenchmarkResult& result) {
  Table table({">tokens", ">ms p10", ">median", ">p90", ">weights GB/s", ">GFLOP/s", ">floor ms", ">over floor",
               ">workspace", "output"});
  for (const MoeBenchmarkRow& row : result.rows)
    table.add({format_count(row.tokens), fmt::format("{:.3f}", row.ms_p10), fmt::format("{:.3f}", row.ms_median),
               fmt::format("{:.3f}", row.ms_p90), fmt::format("{:.1f}", row.weight_gb_per_s),
               fmt::format("{:.0f}", row.gflop_per_s), fmt::format("{:.3f}", row.floor_ms),
               fmt::format("{:.2f}x", row.over_floor), format_bytes(row.workspace_bytes),
               fmt::format("{:016x}", row.output_hash)});
  return fmt::format("{} on {}\nprobes: reads {:.1f} GB/s, bf16 {:.0f} GFLOP/s, f32 {:.0f} GFLOP/s\n{}",
                     problem_text(problem), device_text(device), result.probes.read_gb_per_s,
                     result.probes.bf16_gflop_per_s, result.probes.f32_gflop_per_s, table.text());
}

int run_bench_moe(const Options& options) {
  const Problem problem = parse_problem(options.problem);
  if (cuda_ordinal(options.device)) open_cpu(options.device, "bench");  // says what is missing
  const std::shared_ptr<Backend> backend = open_backend_for(problem, options.device, options.threads);
  const Fingerprint fingerprint = warm_fingerprint(plan(problem.caps, backend->device()), *backend);
  print_fingerprint(fingerprint);
  MoeBenchmarkOptions how;
  how.calls = options.calls;
  how.layers = options.layers;
  how.log = [](const std::string& text) { std::fprintf(stderr, "bench: %s\n", text.c_str()); };
  const MoeBenchmarkResult result = run_moe_benchmark(problem, *backend, how);
  if (options.json)
    print_bench_json(problem, backend->device(), result, fingerprint);
  else
    write_stdout(bench_text(problem, backend->device(), result));
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* bench = app.add_subcommand("bench", "measure speed with a fixed protocol");
  bench->require_subcommand(1);
  bench->footer("Examples:\n  fourfold bench moe 't1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'");
  CLI::App* verb = bench->add_subcommand("moe", "time the operation: cold weights, fresh routing, medians");
  verb->add_option("problem", options->problem, "as 't1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'")->required();
  verb->add_option("--device", options->device, kCpuDeviceHelp)->capture_default_str();
  verb->add_option("--threads", options->threads, "threads; 0 is FOURFOLD_THREADS or OpenMP's default")
      ->check(CLI::Range(0, 4096));
  verb->add_option(
          "--calls", options->calls,
          fmt::format("timed calls per token count, at least {} (default: what fits into a second)", kMinTimedCalls))
      ->check(CLI::Range(kMinTimedCalls, 1000000));
  verb->add_option("--layers", options->layers, "layers in rotation (default: 2 or more, at least 256 MiB)")
      ->check(CLI::Range(1, 1000000));
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold bench moe 't1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'\n"
      "  fourfold bench moe 't1 k4 e32 h2880 i2880 mxfp4 bf16 swiglu_oai' --threads 2 --calls 50 --json");
  verb->callback([options, &command] { command.run = [options] { return run_bench_moe(*options); }; });
}

}  // namespace fourfold::cli
