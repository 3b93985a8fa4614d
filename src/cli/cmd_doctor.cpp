// fourfold doctor: what this machine is and what the program would do with it, in plain words.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "capture_check.h"
#include "command.h"
#include "fourfold/backend.h"
#include "fourfold/error.h"
#include "fourfold/gpu.h"
#include "fourfold/kernels.h"
#include "fourfold_version.h"
#include "kernel_text.h"
#include "log_scan.h"
#include "machine.h"
#include "output.h"

namespace fourfold::cli {
namespace {

struct Options {
  bool quick = false;
  bool json = false;
  CaptureOptions capture;
  ScanOptions scan;
};

/// The pack of an architecture.
struct ArchitecturePack {
  std::string architecture;
  PackState state;
};

struct Findings {
  Settings settings;
  Device cpu;
  MemoryInfo memory;
  GpuSurvey gpu;
  KernelCompilerState compiler;
  std::vector<ArchitecturePack> packs;  // of the GPUs here; without one, of every architecture
  CacheStatistics cache;
  std::optional<Probes> probes;  // absent with --quick
};

Json settings_json(const Settings& settings) {
  return Json{{"log_level", settings.log_level},
              {"log_file", settings.log_file},
              {"cache_dir", settings.cache_dir},
              {"cache_max_bytes", settings.cache_max_bytes},
              {"no_disk_cache", settings.no_disk_cache},
              {"kernel_dir", settings.kernel_dir},
              {"jit_dump", settings.jit_dump},
              {"cpu_isa", settings.cpu_isa},
              {"threads", settings.threads}};
}

Json gpu_json(const GpuSurvey& survey) {
  Json devices = Json::array();
  for (const Gpu& gpu : survey.gpus)
    devices.push_back({{"ordinal", gpu.ordinal},
                       {"name", gpu.device.name},
                       {"arch", gpu.device.arch},
                       {"compute_capability", gpu.compute_capability},
                       {"multiprocessors", gpu.device.multiprocessors},
                       {"shared_memory_bytes", gpu.device.shared_memory_bytes},
                       {"memory_bytes", gpu.device.memory_bytes},
                       {"l2_bytes", gpu.l2_bytes},
                       {"clock_mhz", gpu.clock_mhz},
                       {"memory_clock_mhz", gpu.memory_clock_mhz},
                       {"memory_bus_bits", gpu.memory_bus_bits},
                       {"memory_gb_per_s", gpu.memory_gb_per_s}});
  return Json{{"driver_version", survey.driver_version},
              {"driver_path", survey.driver_path},
              {"usable", survey.reason.empty()},
              {"reason", survey.reason},
              {"devices", std::move(devices)}};
}

void print_doctor_json(const Findings& found) {
  Json packs = Json::array();
  for (const ArchitecturePack& pack : found.packs) {
    Json entry = pack_json(pack.state);
    entry["architecture"] = pack.architecture;
    packs.push_back(std::move(entry));
  }
  Json json{{"version", FOURFOLD_VERSION},
            {"commit", FOURFOLD_COMMIT},
            {"cpu",
             {{"name", found.cpu.name},
              {"isa", cpu_isa_name(found.cpu.isa)},
              {"isa_fallback_reason", found.cpu.isa_fallback_reason},
              {"threads", found.cpu.threads},
              {"last_level_cache_bytes", last_level_cache_bytes()}}},
            {"memory", {{"total_bytes", found.memory.total_bytes}, {"available_bytes", found.memory.available_bytes}}},
            {"probes", nullptr},
            {"gpu", gpu_json(found.gpu)},
            {"nvrtc", compiler_json(found.compiler)},
            {"packs", std::move(packs)},
            {"cache", cache_json(found.cache)},
            {"settings", settings_json(found.settings)}};
  if (found.probes)
    json["probes"] = {{"read_gb_per_s", found.probes->read_gb_per_s},
                      {"bf16_gflop_per_s", found.probes->bf16_gflop_per_s},
                      {"f32_gflop_per_s", found.probes->f32_gflop_per_s}};
  print_json(json);
}

std::string gpu_text(const Gpu& gpu) {
  return fmt::format("cuda:{}: {} ({}), {} SMs at {} MHz, {} at {:.0f} GB/s ({} bits, {} MHz)", gpu.ordinal,
                     gpu.device.name, gpu.device.arch, gpu.device.multiprocessors, gpu.clock_mhz,
                     format_bytes(static_cast<std::uint64_t>(gpu.device.memory_bytes)), gpu.memory_gb_per_s,
                     gpu.memory_bus_bits, gpu.memory_clock_mhz);
}

// Without a GPU only packs that are there are worth a line.
bool worth_a_line(const ArchitecturePack& pack, const GpuSurvey& survey) {
  return !survey.gpus.empty() || !pack.state.path.empty() || !pack.state.refused.empty();
}

std::string doctor_text(const Findings& found) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) { text += fmt::format("{:<10}{}\n", name, value); };
  line("fourfold", FOURFOLD_VERSION " (" FOURFOLD_COMMIT ")");
  line("CPU", found.cpu.name);
  line("kernels", fmt::format("{}{}", cpu_isa_name(found.cpu.isa),
                              found.cpu.isa_fallback_reason.empty() ? "" : "; " + found.cpu.isa_fallback_reason));
  line("threads", std::to_string(found.cpu.threads));
  line("cache", last_level_cache_bytes() > 0 ? "last level " + format_bytes(last_level_cache_bytes()) : "unknown");
  line("memory", fmt::format("{} of {} available", format_bytes(found.memory.available_bytes),
                             format_bytes(found.memory.total_bytes)));
  if (found.probes)
    line("speed",
         fmt::format("reads {:.1f} GB/s; multiplies {:.0f} GFLOP/s in bf16, {:.0f} GFLOP/s in f32",
                     found.probes->read_gb_per_s, found.probes->bf16_gflop_per_s, found.probes->f32_gflop_per_s));
  else
    line("speed", "not measured (--quick)");
  line("driver", found.gpu.driver_version.empty()
                     ? std::string("none")
                     : fmt::format("runs CUDA {} ({})", found.gpu.driver_version, found.gpu.driver_path));
  for (const Gpu& gpu : found.gpu.gpus) line("GPU", gpu_text(gpu));
  if (!found.gpu.reason.empty()) line("GPU", "none: " + found.gpu.reason);
  line("NVRTC", compiler_text(found.compiler));
  bool pack_said = false;
  for (const ArchitecturePack& pack : found.packs)
    if (worth_a_line(pack, found.gpu)) {
      line("pack", pack.architecture + ": " + pack_text(pack.state));
      pack_said = true;
    }
  if (!pack_said) line("pack", "none for any architecture");
  line("cache dir", cache_text(found.cache) + " (GPU kernels only; the CPU needs none)");
  text += "settings\n";
  const Json settings = settings_json(found.settings);
  for (const auto& [name, value] : settings.items()) text += fmt::format("  {:<18}{}\n", name, value.dump());
  return text;
}

std::vector<ArchitecturePack> packs_of(KernelLibrary& library, const GpuSurvey& survey) {
  std::vector<std::string> architectures;
  for (const Gpu& gpu : survey.gpus)
    if (std::find(architectures.begin(), architectures.end(), gpu.device.arch) == architectures.end())
      architectures.push_back(gpu.device.arch);
  if (architectures.empty()) architectures = kernel_architectures();
  std::vector<ArchitecturePack> packs;
  for (const std::string& architecture : architectures) packs.push_back({architecture, library.pack(architecture)});
  return packs;
}

int run_doctor(const Options& options) {
  if (!options.scan.file.empty()) {
    ScanOptions scan = options.scan;
    scan.json = options.json;
    return scan_log(scan);
  }
  if (!options.capture.sizes.empty()) {
    CaptureOptions capture = options.capture;
    capture.json = options.json;
    return check_captures(capture);
  }
  Findings found;
  found.settings = settings_from_environment();
  const std::shared_ptr<Backend> backend = cpu_backend(found.settings);
  found.cpu = backend->device();
  found.memory = memory_info();
  found.gpu = survey_gpus();
  KernelLibrary library(found.settings);
  found.compiler = library.compiler();
  found.packs = packs_of(library, found.gpu);
  found.cache = library.stat();
  if (!options.quick) found.probes = measure_probes(*backend);
  if (options.json)
    print_doctor_json(found);
  else
    write_stdout(doctor_text(found));
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("doctor", "describe this machine and the settings in force");
  verb->add_flag("--quick", options->quick, "measure nothing");
  // The largest count that a plan can have.
  constexpr std::int64_t kMaxTokens = (std::int64_t{1} << 31) - 1;
  CLI::Option* capture = verb->add_option("--capture", options->capture.sizes,
                                          "instead, say for each of these token counts whether its kernels are there: "
                                          "1,2,4,8; exits with 3 when one is missing");
  capture->delimiter(',')->check(CLI::Range(std::int64_t{1}, kMaxTokens));
  CLI::Option* problem = verb->add_option("--problem", options->capture.problem, "what --capture is about");
  verb->add_option("--device", options->capture.device,
                   "what --capture is about: cuda:0, h200, sm_90a; default: the first GPU")
      ->needs(capture);
  capture->needs(problem);
  problem->needs(capture);
  CLI::Option* scan =
      verb->add_option("--scan", options->scan.file, "instead, say what known lines of this log mean; - is stdin");
  verb->add_option("--from-line", options->scan.from_line, "with --scan: judge lines from here on")
      ->needs(scan)
      ->check(CLI::Range(std::int64_t{1}, INT64_MAX));
  scan->excludes(capture);
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold doctor\n"
      "  fourfold doctor --quick --json\n"
      "  fourfold doctor --scan server.log --from-line 1200\n"
      "  fourfold doctor --capture 1,2,4,8 --problem 't8 k8 e128 h2048 i768 nvfp4 bf16 silu' --device h200");
  verb->callback([options, &command] { command.run = [options] { return run_doctor(*options); }; });
}

}  // namespace fourfold::cli
