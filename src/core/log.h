// The process's log: one spdlog logger named "fourfold", on stderr or in a file. Results never go here.
#pragma once

#include <spdlog/logger.h>

#include "fourfold/settings.h"

namespace fourfold {

/// The logger. Before any configure call: level warn, stderr. Thread-safe.
spdlog::logger& log();

/// Applies `log_level` and `log_file` of `settings` (a file is appended to). Thread-safe.
/// Throws usage for an unknown level or a file that cannot be opened; the old configuration then stays.
void configure_log(const Settings& settings);

/// configure_log, unless a configuration was applied before. For settings that came from the environment.
void configure_log_once(const Settings& settings);

}  // namespace fourfold
