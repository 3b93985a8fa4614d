// fourfold kernels: GPU kernels as files. Here: list, build and prewarm.
#include "cmd_kernels.h"

#include <fmt/format.h>

#include <chrono>

#include "fourfold/error.h"
#include "fourfold/kernels.h"
#include "interrupt.h"
#include "kernel_choice.h"
#include "kernel_text.h"
#include "output.h"
#include "progress.h"

namespace fourfold::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  KernelChoice choice;
  std::string output;
  bool keys = false;
  bool json = false;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "      " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

int run_list(const Options& options) {
  const ChosenKernels chosen = chosen_kernels(options.choice);
  KernelLibrary library;
  const std::vector<KernelState> kernels = library.list(chosen.architecture, chosen.problems);
  const PackState pack = library.pack(chosen.architecture);
  const KernelCompilerState compiler = library.compiler();
  const CacheStatistics cache = library.stat();
  if (options.json) {
    Json list = Json::array();
    for (const KernelState& kernel : kernels) {
      Json entry{
          {"name", kernel.name}, {"source", kernel.source}, {"origin", kernel.origin}, {"digest", kernel.digest}};
      if (options.keys) entry["key"] = kernel.key;
      list.push_back(std::move(entry));
    }
    print_json({{"architecture", chosen.architecture},
                {"pack", pack_json(pack)},
                {"compiler", compiler_json(compiler)},
                {"cache", cache_json(cache)},
                {"kernels", std::move(list)}});
    return 0;
  }
  std::string text = fmt::format("kernels for {}: {}, of which {} would have to be compiled\n", chosen.architecture,
                                 kernels.size(), missing_kernels(kernels));
  text += fmt::format("pack      {}\ncache     {}\nNVRTC     {}\n", pack_text(pack), cache_text(cache),
                      compiler_text(compiler));
  if (options.keys) {
    for (const KernelState& kernel : kernels)
      text += fmt::format("  {}  {}  {}\n{}", kernel.name, kernel.origin.empty() ? "-" : kernel.origin, kernel.digest,
                          indented(kernel.key));
  } else {
    Table table({"kernel", "source", "from"});
    for (const KernelState& kernel : kernels)
      table.add({kernel.name, kernel.source, kernel.origin.empty() ? "-" : kernel.origin});
    text += table.text();
  }
  write_stdout(text);
  return 0;
}

// Ends the work between two kernels when a signal came.
KernelLibrary::Progress progress_into(Progress& progress, const InterruptGuard& interrupt) {
  return [&](std::size_t done, std::size_t total, const std::string& name) {
    interrupt.poll();
    if (done < total) progress.update(done, total, name);
  };
}

int run_build(const Options& options) {
  const ChosenKernels chosen = chosen_kernels(options.choice);
  const InterruptGuard interrupt;
  const auto start = Clock::now();
  KernelLibrary library;
  PackContent pack;
  {
    Progress progress("build", Progress::Unit::items, true);
    pack = library.build(chosen.architecture, options.output, chosen.problems, progress_into(progress, interrupt));
  }
  const double seconds = seconds_since(start);
  if (options.json)
    print_json({{"path", pack.path.string()},
                {"architecture", pack.architecture},
                {"compiler", pack.compiler},
                {"sources_digest", pack.sources_digest},
                {"bytes", pack.bytes},
                {"kernels", pack.kernels},
                {"seconds", seconds}});
  else
    write_stdout(fmt::format("{}: {} kernels for {}, {}, compiled by {}, sources {}, in {}\n", pack.path.string(),
                             pack.kernels.size(), pack.architecture, format_bytes(pack.bytes), pack.compiler,
                             pack.sources_digest, format_duration(seconds)));
  return 0;
}

int run_prewarm(const Options& options) {
  const ChosenKernels chosen = chosen_kernels(options.choice);
  const InterruptGuard interrupt;
  const auto start = Clock::now();
  KernelLibrary library;
  KernelPreparation prepared;
  {
    Progress progress("prewarm", Progress::Unit::items, true);
    prepared = library.prewarm(chosen.architecture, chosen.problems, progress_into(progress, interrupt));
  }
  const double seconds = seconds_since(start);
  const std::uint64_t kernels = prepared.from_pack + prepared.from_disk + prepared.compiled;
  if (options.json)
    print_json({{"architecture", chosen.architecture},
                {"kernels", kernels},
                {"from_pack", prepared.from_pack},
                {"from_disk", prepared.from_disk},
                {"compiled", prepared.compiled},
                {"bytes", prepared.bytes},
                {"seconds", seconds}});
  else
    write_stdout(fmt::format("{} kernels for {}, {}: {} in the pack, {} in the cache, {} compiled, in {}\n", kernels,
                             chosen.architecture, format_bytes(prepared.bytes), prepared.from_pack, prepared.from_disk,
                             prepared.compiled, format_duration(seconds)));
  return 0;
}

void add_list(CLI::App& kernels, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = kernels.add_subcommand("list", "the kernels there are, and where the code of each would come from");
  add_kernel_options(*verb, options->choice);
  verb->add_flag("--keys", options->keys, "print what each kernel's key is made of");
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold kernels list --arch sm_90a\n"
      "  fourfold kernels list --problem 't1,64 k8 e128 h2048 i768 nvfp4 bf16 silu @h200' --keys");
  verb->callback([options, &command] { command.run = [options] { return run_list(*options); }; });
}

void add_build(CLI::App& kernels, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = kernels.add_subcommand("build", "compile kernels into a pack; needs NVRTC, no GPU");
  add_kernel_options(*verb, options->choice);
  verb->add_option("-o,--output", options->output, "the pack to write; it is found under the name ARCH.pack")
      ->required();
  add_json_flag(*verb, options->json);
  verb->footer(
      "A pack is looked for in FOURFOLD_KERNEL_DIR, the folder of the program, and \"kernels\" in it.\n"
      "Examples:\n"
      "  fourfold kernels build --arch sm_90a -o sm_90a.pack\n"
      "  fourfold kernels build --arch sm_80 -o sm_80.pack --problem 't64 k8 e128 h2048 i768 nvfp4 bf16 silu'");
  verb->callback([options, &command] { command.run = [options] { return run_build(*options); }; });
}

void add_prewarm(CLI::App& kernels, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = kernels.add_subcommand("prewarm", "compile into the cache what neither a pack nor the cache has");
  add_kernel_options(*verb, options->choice);
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold kernels prewarm\n"
      "  fourfold kernels prewarm --arch sm_90a --problem 't1,64 k8 e128 h2048 i768 nvfp4 bf16 silu'");
  verb->callback([options, &command] { command.run = [options] { return run_prewarm(*options); }; });
}

}  // namespace

void add_kernels_command(CLI::App& app, Command& command) {
  CLI::App* verb = app.add_subcommand("kernels", "GPU kernels as files: list, packs, the cache");
  add_list(*verb, command);
  add_build(*verb, command);
  add_prewarm(*verb, command);
  add_kernel_cache_commands(*verb, command);
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n"
      "  fourfold kernels list --arch sm_90a\n"
      "  fourfold kernels build --arch sm_90a -o sm_90a.pack\n"
      "  fourfold kernels stat");
}

}  // namespace fourfold::cli
