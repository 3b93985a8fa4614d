// Process settings: one struct, which the environment can fill. Nothing here chooses a kernel's arithmetic
// except by capping the instruction set.
#pragma once

#include <cstdint>
#include <string>

namespace fourfold {

/// Every setting of the library. Defaults are what a user gets with an empty environment.
struct Settings {
  std::string log_level = "warn";       ///< FOURFOLD_LOG: trace, debug, info, warn, error, off
  std::string log_file;                 ///< FOURFOLD_LOG_FILE: empty is stderr
  std::string cache_dir;                ///< FOURFOLD_CACHE_DIR: empty is $XDG_CACHE_HOME/fourfold or ~/.cache/fourfold
  std::uint64_t cache_max_bytes = 1ull << 30;  ///< FOURFOLD_CACHE_MAX_BYTES
  bool no_disk_cache = false;           ///< FOURFOLD_NO_DISK_CACHE: 1 turns the disk cache off
  std::string kernel_dir;               ///< FOURFOLD_KERNEL_DIR: kernel packs are searched here first
  std::string jit_dump;                 ///< FOURFOLD_JIT_DUMP: folder for sources and logs of compiles
  std::string cpu_isa = "native";       ///< FOURFOLD_CPU_ISA: portable, avx2, avx512, avx512_bf16 or native; a cap
  int threads = 0;                      ///< FOURFOLD_THREADS: 0 is OpenMP's default
  bool poison_workspace = false;        ///< FOURFOLD_POISON_WORKSPACE: 1 fills the workspace with NaN before every run
};

/// Reads the FOURFOLD_* environment once. Unknown FOURFOLD_* names are warned about once per process.
/// Throws usage when a value does not parse (name, value, allowed values). Thread-safe.
Settings settings_from_environment();

}  // namespace fourfold
