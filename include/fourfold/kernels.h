// GPU kernels as files: which kernels there are, where their code is found, kernel packs, the disk cache. None of this
// needs a GPU; compiling needs NVRTC.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fourfold/plan.h"
#include "fourfold/settings.h"

namespace fourfold {

/// Architectures that kernels are compiled for: "sm_80", "sm_90a", "sm_100a", "sm_120a". Pure.
std::vector<std::string> kernel_architectures();

/// Launches of one run of `tokens` tokens, 1 .. max_tokens: the kernel nodes that a captured graph of it has; 0 on a
/// CPU. Throws usage for other counts. Pure.
std::int64_t kernel_launches(const Plan& plan, std::int64_t tokens);

/// One kernel instance and where its code would come from.
struct KernelState {
  std::string name;    ///< "gate_up_naive<ACTIVATION=silu,DTYPE=bf16,FORMAT=nvfp4>"
  std::string source;  ///< "moe/gate_up_naive.cu"
  std::string origin;  ///< "pack", "disk", or empty: it would have to be compiled
  /// Everything that its code depends on, a line per ingredient, source texts by length and digest. Without a compiler
  /// here, the compiler's line says so.
  std::string key;
  std::string digest;  ///< names its entry in the disk cache; empty without a compiler, which is part of the key
};

/// Kernels prepared, by where their code came from.
struct KernelPreparation {
  std::uint64_t from_pack = 0, from_disk = 0, compiled = 0;
  std::uint64_t bytes = 0;  ///< of all images
};

/// The compiler, or why there is none.
struct KernelCompilerState {
  std::string version;  ///< "13.0"; empty when there is none
  std::string path;
  std::string reason;  ///< empty when there is one
};

/// One entry of the disk cache, read from its key text.
struct CacheEntry {
  std::string digest;          ///< its name
  std::string kernel;          ///< "gate_up_naive<FORMAT=nvfp4>"
  std::string architecture;    ///< "sm_90a"
  std::string compiler;        ///< "nvrtc 13.0"
  std::uint64_t bytes = 0;     ///< of the file
  std::int64_t last_used = 0;  ///< seconds since 1970
};

/// What the disk cache holds.
struct CacheStatistics {
  std::filesystem::path folder;  ///< of the entries
  std::string problem;           ///< why the cache is not used; empty when it is
  std::uint64_t entries = 0, bytes = 0, max_bytes = 0;
  std::uint64_t partial_files = 0;  ///< being written, or left by a process that was killed
};

/// What trim() or clear() did.
struct CacheRemoval {
  std::uint64_t entries = 0, bytes = 0;  ///< removed
  std::uint64_t entries_left = 0, bytes_left = 0;
};

/// A file that is no entry, and why.
struct BadEntry {
  std::string file, reason;
};

/// Every file of the cache, judged.
struct CacheVerification {
  std::vector<CacheEntry> valid;
  std::vector<BadEntry> bad;
};

/// What import_from() took.
struct CacheImport {
  std::uint64_t added = 0, present = 0;  ///< present: there already, left as it was
  std::vector<BadEntry> refused;
};

/// The pack that serves an architecture, or why there is none.
struct PackState {
  std::filesystem::path path;        ///< empty when there is none
  std::vector<std::string> refused;  ///< packs that are there and are not used: path and why (stale, damaged)
  std::string reason;                ///< why there is none: those refused, or where it was looked for
};

/// A kernel pack: what it holds, and whether this build would use it.
struct PackContent {
  std::filesystem::path path;
  std::string architecture;
  std::string compiler;        ///< "nvrtc 13.0"
  std::string sources_digest;  ///< of the sources it was built from, 32 hex digits
  std::uint64_t bytes = 0;     ///< of the file
  std::vector<std::string> kernels;
  std::string stale_reason;  ///< empty when this build uses it
};

/// The kernels of this build, their packs and their disk cache. Every call looks at the files anew. Thread-safe.
/// Packs that are refused and a cache that is not used are warned about once each.
class KernelLibrary {
 public:
  /// Called before each kernel with (done, total, name), again and again while another process builds that kernel, and
  /// once with done == total and an empty name. What it throws ends the work; nothing half-written is left.
  using Progress = std::function<void(std::size_t done, std::size_t total, const std::string& name)>;

  /// Opens nothing yet.
  explicit KernelLibrary(const Settings& settings = settings_from_environment());
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// Every kernel that a plan for `architecture` can launch, ascending by name; with `problems`, only those that plans
  /// of these caps launch. Throws usage for an unknown architecture, unsupported for caps that planning refuses.
  std::vector<KernelState> list(const std::string& architecture, std::span<const Caps> problems = {});
  /// Compiles them into one file (aside, fsync, rename), one after another in ascending order. What the disk cache has
  /// is not compiled again, and what is compiled goes there. Takes seconds to minutes.
  /// Throws as list does; usage for no kernel at all, unavailable without a compiler, bad_input when the file cannot be
  /// written, which is looked at first as far as that is possible.
  PackContent build(const std::string& architecture, const std::filesystem::path& file,
                    std::span<const Caps> problems = {}, const Progress& progress = {});
  /// Makes each of them available without a compile: those that neither a pack nor the disk cache has are compiled into
  /// the disk cache. Throws as list does; unavailable when one has to be compiled and there is no compiler, or the disk
  /// cache cannot keep it.
  KernelPreparation prewarm(const std::string& architecture, std::span<const Caps> problems = {},
                            const Progress& progress = {});

  /// Opens NVRTC to see whether it is there.
  KernelCompilerState compiler();
  /// Looks for the pack that serves `architecture`, in the order of FOURFOLD_KERNEL_DIR, the folder of the program, and
  /// "kernels" in it. Reads every pack that it looks at in full.
  PackState pack(const std::string& architecture);
  /// Reads and checks a pack. Throws bad_input with the path and what is wrong with it.
  PackContent read_pack(const std::filesystem::path& file);

  /// Counts and adds up; never throws for a cache that is not used, `problem` says why.
  CacheStatistics stat();
  /// Removes the least recently used entries until `max_bytes` hold the rest, and partial files older than an hour.
  /// Like all functions below, throws unavailable with the reason when the cache is not used or cannot be changed.
  CacheRemoval trim(std::uint64_t max_bytes);
  /// Reads every entry in full. `remove_bad` removes those that are damaged.
  CacheVerification verify(bool remove_bad = false);
  /// Removes every entry.
  CacheRemoval clear();
  /// Called before each file is copied. What it throws ends the work; nothing half-written is left.
  using Pause = std::function<void()>;
  /// Copies all valid entries into `folder`, which is made, or is there and empty; returns their number. Throws usage
  /// for any other folder. All or nothing.
  std::uint64_t export_to(const std::filesystem::path& folder, const Pause& pause = {});
  /// Takes the entries of a folder that export_to made; damaged ones are refused one by one. Trust in what the others
  /// hold is the caller's. Throws bad_input when `folder` cannot be read.
  CacheImport import_from(const std::filesystem::path& folder, const Pause& pause = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fourfold
