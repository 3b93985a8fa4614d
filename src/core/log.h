// The process's log: one spdlog logger named "fourfold", on stderr or in a file. Results never go here.
#pragma once

#include <string_view>

#include "fourfold/settings.h"

namespace fourfold {

/// Writes and flushes one line at the named level if that level is on. Before any configure call: level warn, stderr.
/// Thread-safe.
void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warn(std::string_view text);
void log_error(std::string_view text);

/// Applies `log_level` and `log_file` of `settings` (a file is appended to). Thread-safe.
/// Throws usage for an unknown level or a file that cannot be opened; the old configuration then stays.
void configure_log(const Settings& settings);

/// configure_log, unless a configuration was applied before. For settings that came from the environment.
void configure_log_once(const Settings& settings);

}  // namespace fourfold
