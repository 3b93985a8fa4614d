// The parts of `fourfold kernels` that live in other files.
#pragma once

#include "command.h"

namespace fourfold::cli {

/// Adds stat, trim, verify, clear, export and import, which look after the disk cache.
void add_kernel_cache_commands(CLI::App& kernels, Command& command);

}  // namespace fourfold::cli
