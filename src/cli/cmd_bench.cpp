// fourfold bench: how long the operation takes here, against what the machine could do at most.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "bench_report.h"
#include "command.h"
#include "device_choice.h"
#include "fingerprint.h"
#include "fourfold/error.h"
#include "gpu_bench.h"
#include "moe_benchmark.h"
#include "output.h"

namespace fourfold::cli {
namespace {

struct Options {
  GpuBenchOptions gpu;  // device, problems and json serve the CPU too
  std::string routing = "uniform";
  int threads = 0;
  int cpu_calls = 0;
  int layers = 0;
};

/// Options of the one kind of device that the other would ignore.
const std::vector<std::string>& cpu_only() {
  static const std::vector<std::string> names{"--threads", "--calls"};
  return names;
}
const std::vector<std::string>& gpu_only() {
  static const std::vector<std::string> names{"--suite",  "--routing",         "--capacity", "--reps",
                                              "--warmup", "--pause",           "--graph-calls", "--compare",
                                              "--noise",  "--ab",              "--variants", "--floor-bandwidth",
                                              "--floor-tflops"};
  return names;
}

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
  print_json({{"kind", "bench_moe"},
              {"rows", std::move(rows)},
              {"probes",
               {{"read_gb_per_s", result.probes.read_gb_per_s},
                {"bf16_gflop_per_s", result.probes.bf16_gflop_per_s},
                {"f32_gflop_per_s", result.probes.f32_gflop_per_s}}},
              {"problem", problem_text(problem)},
              {"device", device.name},
              {"isa", cpu_isa_name(device.isa)},
              {"threads", device.threads},
              {"commit", build_commit()},
              {"dirty", build_is_dirty()},
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

int run_cpu_bench(const Options& options) {
  const GpuBenchOptions& shared = options.gpu;
  if (shared.cases.problems.size() != 1)
    throw Error(ErrorCode::usage, fmt::format("bench moe on the CPU takes one problem, {} were given; write it as "
                                              "'t1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'",
                                              shared.cases.problems.size()));
  const Problem problem = parse_problem(shared.cases.problems.front());
  const std::shared_ptr<Backend> backend = open_backend_for(problem, shared.device, options.threads);
  const Fingerprint fingerprint = warm_fingerprint(plan(problem.caps, backend->device()), *backend);
  print_fingerprint(fingerprint);
  MoeBenchmarkOptions how;
  how.calls = options.cpu_calls;
  how.layers = options.layers;
  how.log = [](const std::string& text) { std::fprintf(stderr, "bench: %s\n", text.c_str()); };
  const MoeBenchmarkResult result = run_moe_benchmark(problem, *backend, how);
  if (shared.json)
    print_bench_json(problem, backend->device(), result, fingerprint);
  else
    write_stdout(bench_text(problem, backend->device(), result));
  return 0;
}

/// `given` are the options that were written.
int run_bench_moe(Options& options, const std::vector<std::string>& given) {
  const bool on_gpu = cuda_ordinal(options.gpu.device).has_value();
  for (const std::string& name : on_gpu ? cpu_only() : gpu_only())
    if (std::find(given.begin(), given.end(), name) != given.end())
      throw Error(ErrorCode::usage, fmt::format("{} is for a {}, --device is {}; leave one of the two out", name,
                                                on_gpu ? "CPU" : "GPU (--device cuda:0)", options.gpu.device));
  if (!on_gpu) return run_cpu_bench(options);
  options.gpu.weight_sets = options.layers;
  options.gpu.cases.routing = routing_from_name(options.routing);
  return run_gpu_bench(options.gpu);
}

void add_gpu_options(CLI::App& verb, Options& options) {
  GpuBenchOptions& gpu = options.gpu;
  const char* const group = "With --device cuda:N";
  verb.add_option("--suite", gpu.cases.suite,
                  "the four shapes of the published comparison: decode (1 to 256 tokens) or prefill (512 to 16384)")
      ->check(CLI::IsMember(suite_names()))
      ->group(group);
  verb.add_option("--routing", options.routing, "uniform, zipf or hot8")
      ->check(CLI::IsMember({"uniform", "zipf", "hot8"}))
      ->capture_default_str()
      ->group(group);
  verb.add_option("--capacity", gpu.cases.capacities, "tokens that the plan serves; a longer call runs in slices")
      ->delimiter(',')
      ->allow_extra_args(false)  // a problem may follow
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31))
      ->group(group);
  verb.add_option("--reps", gpu.replays, "timings of every graph; a median wants at least 30")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(group);
  verb.add_option("--warmup", gpu.warm_up, "replays of every graph before them")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str()
      ->group(group);
  verb.add_option("--pause", gpu.pause_ms, "least rest before a timing, ms; 0: none at all, the card gets hot")
      ->check(CLI::Range(0.0, 10000.0))
      ->capture_default_str()
      ->group(group);
  verb.add_option("--graph-calls", gpu.calls, "calls of a graph (default: about a millisecond of them)")
      ->check(CLI::Range(1, 10000))
      ->group(group);
  verb.add_option("--floor-bandwidth", gpu.floor_tb_per_s, "TB/s of the floor (default: measured on known devices)")
      ->check(CLI::PositiveNumber)
      ->group(group);
  verb.add_option("--floor-tflops", gpu.floor_tflop_per_s, "TFLOP/s of the floor (default: likewise)")
      ->check(CLI::PositiveNumber)
      ->group(group);
  CLI::Option* const compare =
      verb.add_option("--compare", gpu.compare, "a report of --json; exit code 6 when a row got slower")->group(group);
  verb.add_option("--noise", gpu.noise_percent, "per cent that no comparison looks below")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->needs(compare)
      ->group(group);
  CLI::Option* const ab =
      verb.add_option("--ab", gpu.ab,
                      "two texts of words, replayed in turn: gate_up=2x1x3 down=rows:2x4x3 routing=zipf capacity=512 "
                      "or words of a problem; '' changes nothing; exit code 6 when the second is slower")
          ->expected(2)
          ->excludes(compare)
          ->group(group);
  verb.add_flag("--variants", gpu.variants, "time every kernel instance that could serve, step by step")
      ->excludes(compare)
      ->excludes(ab)
      ->group(group);
}

}  // namespace

void add_bench_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* bench = app.add_subcommand("bench", "measure speed with a fixed protocol");
  bench->require_subcommand(1);
  bench->footer("Examples:\n  fourfold bench moe 't1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'");
  CLI::App* verb = bench->add_subcommand("moe", "time the operation: cold weights, fresh routing, medians");
  verb->add_option("problem", options->gpu.cases.problems,
                   "as 't1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'; several on a GPU");
  options->gpu.device = "cpu";
  verb->add_option("--device", options->gpu.device, kRunDeviceHelp)->capture_default_str();
  verb->add_option("--threads", options->threads, "CPU: threads; 0 is FOURFOLD_THREADS or OpenMP's default")
      ->check(CLI::Range(0, 4096));
  verb->add_option("--calls", options->cpu_calls,
                   fmt::format("CPU: timed calls per token count, at least {} (default: what fits into a second)",
                               kMinTimedCalls))
      ->check(CLI::Range(kMinTimedCalls, 1000000));
  verb->add_option("--layers", options->layers,
                   "layers in rotation (default: 2 or more; at least 256 MiB on a CPU, 2.5 GB on a GPU)")
      ->check(CLI::Range(1, 1000000));
  add_json_flag(*verb, options->gpu.json);
  add_gpu_options(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  fourfold bench moe 't1,16,64 k8 e128 h2048 i768 nvfp4 bf16 silu'\n"
      "  fourfold bench moe 't1 k4 e32 h2880 i2880 mxfp4 bf16 swiglu_oai' --threads 2 --calls 50 --json\n"
      "  fourfold bench moe 't1,8,64,256 k8 e160 h6144 i512' --device cuda:0 --json > now.json\n"
      "  fourfold bench moe --suite decode --device cuda:0 --compare before.json\n"
      "  fourfold bench moe 't3072 k8 e160 h6144 i512' --device cuda:0 --capacity 3072,1536,1024,512\n"
      "  fourfold bench moe 't64 k8 e160 h6144 i512' --device cuda:0 --ab '' 'gate_up=2x2x3'\n"
      "  fourfold bench moe 't8 k8 e128 h2048 i768' --device cuda:0 --variants");
  verb->callback([options, verb, &command] {
    std::vector<std::string> given;
    for (const std::vector<std::string>* names : {&cpu_only(), &gpu_only()})
      for (const std::string& name : *names)
        if (verb->count(name) > 0) given.push_back(name);
    command.run = [options, given] { return run_bench_moe(*options, given); };
  });
}

}  // namespace fourfold::cli
