// One logger whose sink can be exchanged while other threads log.
#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "core/check.h"

namespace fourfold {
namespace {

struct LogLevel {
  const char* name;
  spdlog::level::level_enum level;
};

constexpr std::array<LogLevel, 6> kLogLevels{{{"trace", spdlog::level::trace},
                                              {"debug", spdlog::level::debug},
                                              {"info", spdlog::level::info},
                                              {"warn", spdlog::level::warn},
                                              {"error", spdlog::level::err},
                                              {"off", spdlog::level::off}}};

struct LogState {
  std::shared_ptr<spdlog::sinks::dist_sink_mt> sink = std::make_shared<spdlog::sinks::dist_sink_mt>();
  spdlog::logger logger{"fourfold", sink};
  std::mutex mutex;  // guards configured and the pair of sink and level
  bool configured = false;

  LogState() {
    sink->add_sink(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger.set_level(spdlog::level::warn);
    logger.set_pattern("[%n %l] %v");
    logger.flush_on(spdlog::level::trace);
  }
};

// Never destroyed: destructors of other statics may still log.
LogState& log_state() {
  static LogState* state = new LogState;
  return *state;
}

spdlog::level::level_enum parse_level(const std::string& name) {
  for (const LogLevel& level : kLogLevels)
    if (name == level.name) return level.level;
  fail(ErrorCode::usage, "log level (FOURFOLD_LOG) is '{}'; allowed: trace, debug, info, warn, error, off", name);
}

void apply(LogState& state, const Settings& settings) {
  const spdlog::level::level_enum level = parse_level(settings.log_level);
  spdlog::sink_ptr target;
  if (settings.log_file.empty()) {
    target = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    target->set_pattern("[%n %l] %v");
  } else {
    // spdlog would make missing folders, as root even at the top of the file system.
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(settings.log_file).parent_path();
    check(folder.empty() || std::filesystem::is_directory(folder, ignored), ErrorCode::usage,
          "log file (FOURFOLD_LOG_FILE) '{}' cannot be opened: there is no folder '{}'; make it or name another file",
          settings.log_file, folder.string());
    try {
      target = std::make_shared<spdlog::sinks::basic_file_sink_mt>(settings.log_file);
    } catch (const spdlog::spdlog_ex& error) {
      fail(ErrorCode::usage, "log file (FOURFOLD_LOG_FILE) '{}' cannot be opened: {}; name a writable file or unset it",
           settings.log_file, error.what());
    }
    target->set_pattern("%Y-%m-%dT%H:%M:%S.%e [%l] %v");
  }
  state.sink->set_sinks({target});
  state.logger.set_level(level);
  state.configured = true;
}

}  // namespace

void log_debug(std::string_view text) { log_state().logger.debug(text); }
void log_info(std::string_view text) { log_state().logger.info(text); }
void log_warn(std::string_view text) { log_state().logger.warn(text); }
void log_error(std::string_view text) { log_state().logger.error(text); }

void configure_log(const Settings& settings) {
  LogState& state = log_state();
  const std::lock_guard lock(state.mutex);
  apply(state, settings);
}

void configure_log_once(const Settings& settings) {
  LogState& state = log_state();
  const std::lock_guard lock(state.mutex);
  if (!state.configured) apply(state, settings);
}

}  // namespace fourfold
