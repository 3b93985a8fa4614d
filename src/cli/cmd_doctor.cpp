// fourfold doctor: what this machine is and what the program would do with it, in plain words.
#include <fmt/format.h>

#include <optional>

#include "command.h"
#include "fourfold/backend.h"
#include "fourfold_version.h"
#include "machine.h"
#include "output.h"

namespace fourfold::cli {
namespace {

struct Options {
  bool quick = false;
  bool json = false;
};

struct Findings {
  Settings settings;
  Device cpu;
  MemoryInfo memory;
  GpuDriver gpu;
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

void print_doctor_json(const Findings& found) {
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
            {"gpu",
             {{"driver_present", found.gpu.present},
              {"driver_version", found.gpu.version},
              {"devices", found.gpu.devices},
              {"usable", false}}},
            {"cache_folder", found.settings.cache_dir},
            {"settings", settings_json(found.settings)}};
  if (found.probes)
    json["probes"] = {{"read_gb_per_s", found.probes->read_gb_per_s},
                      {"bf16_gflop_per_s", found.probes->bf16_gflop_per_s},
                      {"f32_gflop_per_s", found.probes->f32_gflop_per_s}};
  print_json(json);
}

std::string gpu_text(const GpuDriver& gpu) {
  if (!gpu.present) return "no NVIDIA driver on this machine; the CPU is used";
  return fmt::format("driver {}, {} device{}; this build has no GPU kernels, so the CPU is used",
                     gpu.version.empty() ? "present" : gpu.version, gpu.devices.size(),
                     gpu.devices.size() == 1 ? "" : "s");
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
  line("GPU", gpu_text(found.gpu));
  line("cache dir", found.settings.cache_dir + (found.settings.no_disk_cache ? " (off)" : "") +
                        " (holds GPU kernels only; the CPU needs none)");
  text += "settings\n";
  const Json settings = settings_json(found.settings);
  for (const auto& [name, value] : settings.items()) text += fmt::format("  {:<18}{}\n", name, value.dump());
  return text;
}

int run_doctor(const Options& options) {
  Findings found;
  found.settings = settings_from_environment();
  const std::shared_ptr<Backend> backend = cpu_backend(found.settings);
  found.cpu = backend->device();
  found.memory = memory_info();
  found.gpu = gpu_driver();
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
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold doctor\n"
      "  fourfold doctor --quick --json");
  verb->callback([options, &command] { command.run = [options] { return run_doctor(*options); }; });
}

}  // namespace fourfold::cli
