// fourfold kernels stat, trim, verify, clear, export, import: looking after the disk cache, and checking packs.
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <optional>

#include "byte_size.h"
#include "cmd_kernels.h"
#include "fourfold/error.h"
#include "fourfold/kernels.h"
#include "interrupt.h"
#include "kernel_text.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr int kBadInput = static_cast<int>(ErrorCode::bad_input);

struct Options {
  std::optional<std::string> max_bytes;
  std::string folder;
  std::vector<std::string> packs;
  bool remove_bad = false;
  bool json = false;
};

Json bad_json(const std::vector<BadEntry>& entries) {
  Json list = Json::array();
  for (const BadEntry& entry : entries) list.push_back({{"file", entry.file}, {"reason", entry.reason}});
  return list;
}

std::string bad_text(const std::vector<BadEntry>& entries) {
  std::string text;
  for (const BadEntry& entry : entries) text += fmt::format("  bad: {}: {}\n", entry.file, entry.reason);
  return without_controls(text);
}

std::string utc_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "?";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)};
}

std::string kernels_text(std::uint64_t count) { return fmt::format("{} kernel{}", count, count == 1 ? "" : "s"); }

int run_stat(const Options& options) {
  const CacheStatistics cache = KernelLibrary().stat();
  if (options.json)
    print_json(cache_json(cache));
  else
    write_stdout(
        cache_text(cache) +
        (cache.partial_files > 0
             ? fmt::format("; {} partial files, in work or left by a process that was killed", cache.partial_files)
             : std::string()) +
        "\n");
  return 0;
}

void print_removal(const CacheRemoval& removal, const std::string& folder, bool json) {
  if (json)
    print_json({{"entries", removal.entries},
                {"bytes", removal.bytes},
                {"entries_left", removal.entries_left},
                {"bytes_left", removal.bytes_left}});
  else
    write_stdout(fmt::format("{}: removed {} ({}); {} left ({})\n", folder, kernels_text(removal.entries),
                             format_bytes(removal.bytes), removal.entries_left, format_bytes(removal.bytes_left)));
}

int run_trim(const Options& options) {
  const std::optional<std::uint64_t> asked =
      options.max_bytes ? std::optional(byte_size("--max-bytes", *options.max_bytes)) : std::nullopt;
  KernelLibrary library;
  const CacheStatistics cache = library.stat();
  print_removal(library.trim(asked.value_or(cache.max_bytes)), cache.folder.string(), options.json);
  return 0;
}

int run_clear(const Options& options) {
  KernelLibrary library;
  const std::string folder = library.stat().folder.string();
  print_removal(library.clear(), folder, options.json);
  return 0;
}

Json pack_report(KernelLibrary& library, const std::string& file) {
  Json report{{"file", file}, {"ok", false}, {"reason", ""}};
  try {
    const PackContent pack = library.read_pack(file);
    report["ok"] = pack.stale_reason.empty();
    report["reason"] = pack.stale_reason.empty() ? std::string() : "stale: " + pack.stale_reason;
    report["architecture"] = pack.architecture;
    report["compiler"] = pack.compiler;
    report["sources_digest"] = pack.sources_digest;
    report["bytes"] = pack.bytes;
    report["kernels"] = pack.kernels;
  } catch (const Error& error) {
    report["reason"] = error.what();
  }
  return report;
}

int verify_packs(const Options& options) {
  KernelLibrary library;
  Json reports = Json::array();
  std::string text;
  bool ok = true;
  for (const std::string& file : options.packs) {
    Json report = pack_report(library, file);
    ok = ok && report["ok"].get<bool>();
    text += report["ok"].get<bool>()
                ? fmt::format("ok   {}: {} for {}, {}\n", file, kernels_text(report["kernels"].size()),
                              report["architecture"].get<std::string>(), report["compiler"].get<std::string>())
                : fmt::format("BAD  {}: {}\n", file, report["reason"].get<std::string>());
    reports.push_back(std::move(report));
  }
  if (options.json)
    print_json({{"ok", ok}, {"packs", std::move(reports)}});
  else
    write_stdout(without_controls(text));
  return ok ? 0 : kBadInput;
}

int run_verify(const Options& options) {
  if (!options.packs.empty()) {
    if (options.remove_bad) throw Error(ErrorCode::usage, "--remove-bad is for the cache; packs are only looked at");
    return verify_packs(options);
  }
  const CacheVerification result = KernelLibrary().verify(options.remove_bad);
  if (options.json) {
    Json valid = Json::array();
    for (const CacheEntry& entry : result.valid)
      valid.push_back({{"digest", entry.digest},
                       {"kernel", entry.kernel},
                       {"architecture", entry.architecture},
                       {"compiler", entry.compiler},
                       {"bytes", entry.bytes},
                       {"last_used", entry.last_used}});
    print_json({{"ok", result.bad.empty()},
                {"valid", std::move(valid)},
                {"bad", bad_json(result.bad)},
                {"removed", options.remove_bad}});
  } else {
    Table table({"kernel", "architecture", "compiler", ">bytes", "last used (UTC)"});
    for (const CacheEntry& entry : result.valid)
      table.add({entry.kernel, entry.architecture, entry.compiler, format_count(static_cast<std::int64_t>(entry.bytes)),
                 utc_text(entry.last_used)});
    write_stdout((table.empty() ? std::string() : table.text()) + bad_text(result.bad) +
                 fmt::format("{} valid, {} bad{}\n", result.valid.size(), result.bad.size(),
                             options.remove_bad && !result.bad.empty() ? " and removed" : ""));
  }
  return result.bad.empty() ? 0 : kBadInput;
}

int run_export(const Options& options) {
  const InterruptGuard interrupt;
  const std::uint64_t entries = KernelLibrary().export_to(options.folder, [&] { interrupt.poll(); });
  if (options.json)
    print_json({{"folder", options.folder}, {"entries", entries}});
  else
    write_stdout(fmt::format("{}: {}\n", options.folder, kernels_text(entries)));
  return 0;
}

int run_import(const Options& options) {
  const InterruptGuard interrupt;
  const CacheImport result = KernelLibrary().import_from(options.folder, [&] { interrupt.poll(); });
  if (options.json)
    print_json({{"folder", options.folder},
                {"added", result.added},
                {"present", result.present},
                {"refused", bad_json(result.refused)}});
  else
    write_stdout(bad_text(result.refused) + fmt::format("{}: {} added, {} already there, {} refused\n", options.folder,
                                                        kernels_text(result.added), result.present,
                                                        result.refused.size()));
  return result.refused.empty() ? 0 : kBadInput;
}

struct CacheVerb {
  const char* name;
  const char* description;
  const char* footer;
  int (*run)(const Options&);
};

std::pair<CLI::App*, std::shared_ptr<Options>> add_verb(CLI::App& kernels, Command& command, const CacheVerb& verb) {
  auto options = std::make_shared<Options>();
  CLI::App* app = kernels.add_subcommand(verb.name, verb.description);
  add_json_flag(*app, options->json);
  app->footer(verb.footer);
  app->callback([options, run = verb.run, &command] { command.run = [options, run] { return run(*options); }; });
  return {app, options};
}

}  // namespace

void add_kernel_cache_commands(CLI::App& kernels, Command& command) {
  add_verb(kernels, command,
           {"stat", "how much the cache holds, or why it is not used", "Example:\n  fourfold kernels stat --json",
            run_stat});
  const auto trim = add_verb(kernels, command,
                             {"trim", "remove the least recently used entries of the cache",
                              "Examples:\n"
                              "  fourfold kernels trim\n"
                              "  fourfold kernels trim --max-bytes 512M",
                              run_trim});
  trim.first->add_option("--max-bytes", trim.second->max_bytes,
                         "what may stay, as 536870912 or 512M; default: FOURFOLD_CACHE_MAX_BYTES");
  const auto verify = add_verb(kernels, command,
                               {"verify", "read every entry of the cache, or packs, in full; 4 when one is bad",
                                "Examples:\n"
                                "  fourfold kernels verify\n"
                                "  fourfold kernels verify --remove-bad\n"
                                "  fourfold kernels verify sm_90a.pack",
                                run_verify});
  verify.first->add_option("packs", verify.second->packs, "packs to check instead of the cache");
  verify.first->add_flag("--remove-bad", verify.second->remove_bad, "remove the bad entries");
  add_verb(kernels, command,
           {"clear", "remove every entry of the cache", "Example:\n  fourfold kernels clear", run_clear});
  const auto exported = add_verb(kernels, command,
                                 {"export", "copy every valid entry of the cache into a new folder",
                                  "Example:\n  fourfold kernels export kernels-copy", run_export});
  exported.first->add_option("folder", exported.second->folder, "the folder to make; must be new or empty")->required();
  const auto imported = add_verb(kernels, command,
                                 {"import", "take the entries of an exported folder into the cache; 4 when one is bad",
                                  "Its kernels will run on this machine's GPUs: import only what you trust.\n"
                                  "Example:\n  fourfold kernels import kernels-copy",
                                  run_import});
  imported.first->add_option("folder", imported.second->folder, "a folder that export wrote")->required();
}

}  // namespace fourfold::cli
