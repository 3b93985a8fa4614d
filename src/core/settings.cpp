// The environment as a second way to fill Settings. The only file that may read the environment.
#include "fourfold/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/log.h"

namespace fourfold {
namespace {

constexpr std::string_view kPrefix = "FOURFOLD_";
constexpr std::array<std::string_view, 10> kKnownNames{
    "FOURFOLD_LOG",           "FOURFOLD_LOG_FILE",   "FOURFOLD_CACHE_DIR", "FOURFOLD_CACHE_MAX_BYTES",
    "FOURFOLD_NO_DISK_CACHE", "FOURFOLD_KERNEL_DIR", "FOURFOLD_JIT_DUMP",  "FOURFOLD_CPU_ISA",
    "FOURFOLD_THREADS",       "FOURFOLD_POISON_WORKSPACE"};
constexpr std::array<std::string_view, 6> kLogLevels{"trace", "debug", "info", "warn", "error", "off"};
constexpr std::array<std::string_view, 5> kCpuIsas{"native", "portable", "avx2", "avx512", "avx512_bf16"};
constexpr int kMaxThreads = 4096;  // far above any machine's cores; below what would exhaust threads by a typo

// Empty when unset: an empty value means "not set" throughout, as in most shells' `NAME= program`.
std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

template <std::size_t N>
void read_choice(const char* name, const std::array<std::string_view, N>& allowed, std::string& out) {
  const std::string value = value_of(name);
  if (value.empty()) return;
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    fail(ErrorCode::usage, "{} is '{}'; allowed: {}", name, value, fmt::join(allowed, ", "));
  out = value;
}

template <class Integer>
void read_integer(const char* name, Integer low, Integer high, const char* meaning, Integer& out) {
  const std::string value = value_of(name);
  if (value.empty()) return;
  Integer parsed{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size() || parsed < low || parsed > high)
    fail(ErrorCode::usage, "{} is '{}'; allowed: a whole number {} .. {} ({})", name, value, low, high, meaning);
  out = parsed;
}

void read_switch(const char* name, bool& out) {
  const std::string value = value_of(name);
  if (value.empty()) return;
  if (value != "0" && value != "1") fail(ErrorCode::usage, "{} is '{}'; allowed: 0, 1", name, value);
  out = value == "1";
}

// XDG Base Directory Specification: a relative XDG_CACHE_HOME is to be ignored.
std::string default_cache_dir() {
  const std::string xdg = value_of("XDG_CACHE_HOME");
  if (!xdg.empty() && xdg.front() == '/') return xdg + "/fourfold";
  const std::string home = value_of("HOME");
  return home.empty() ? std::string() : home + "/.cache/fourfold";
}

void warn_about_unknown_names() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (name.substr(0, kPrefix.size()) != kPrefix) continue;
    if (std::find(kKnownNames.begin(), kKnownNames.end(), name) == kKnownNames.end()) unknown.emplace_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  for (const std::string& name : unknown)
    log_warn(fmt::format("{} is no setting and is ignored; known: {}", name, fmt::join(kKnownNames, ", ")));
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  read_choice("FOURFOLD_LOG", kLogLevels, settings.log_level);
  settings.log_file = value_of("FOURFOLD_LOG_FILE");
  settings.cache_dir = value_of("FOURFOLD_CACHE_DIR");
  if (settings.cache_dir.empty()) settings.cache_dir = default_cache_dir();
  read_integer<std::uint64_t>("FOURFOLD_CACHE_MAX_BYTES", 0, std::numeric_limits<std::uint64_t>::max(), "bytes",
                              settings.cache_max_bytes);
  read_switch("FOURFOLD_NO_DISK_CACHE", settings.no_disk_cache);
  settings.kernel_dir = value_of("FOURFOLD_KERNEL_DIR");
  settings.jit_dump = value_of("FOURFOLD_JIT_DUMP");
  read_choice("FOURFOLD_CPU_ISA", kCpuIsas, settings.cpu_isa);
  read_integer<int>("FOURFOLD_THREADS", 0, kMaxThreads, "0 is one per core", settings.threads);
  read_switch("FOURFOLD_POISON_WORKSPACE", settings.poison_workspace);

  configure_log_once(settings);
  static std::once_flag warned;
  std::call_once(warned, warn_about_unknown_names);
  return settings;
}

}  // namespace fourfold
