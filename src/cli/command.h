// The verbs of the command line: each file cmd_*.cpp registers one and hands back what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fourfold::cli {

/// What the parsed arguments asked for. `run` returns the exit code; errors are exceptions.
struct Command {
  std::function<int()> run;
};

void add_plan_command(CLI::App& app, Command& command);
void add_inspect_command(CLI::App& app, Command& command);
void add_quantize_command(CLI::App& app, Command& command);
void add_generate_command(CLI::App& app, Command& command);
void add_eval_command(CLI::App& app, Command& command);
void add_verify_command(CLI::App& app, Command& command);
void add_bench_command(CLI::App& app, Command& command);
void add_kernels_command(CLI::App& app, Command& command);
void add_doctor_command(CLI::App& app, Command& command);

/// For options that are 64-bit numbers without a sign: what would wrap around or saturate is refused.
inline CLI::Validator seed_check() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t seed = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        const bool ok = error == std::errc() && end == text.data() + text.size();
        return ok ? std::string() : text + " is no whole number from 0 to 18446744073709551615";
      },
      "UINT64");
}

/// Adds the flag that every reporting verb has.
inline void add_json_flag(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print exactly one JSON object on stdout; everything else goes to stderr");
}

}  // namespace fourfold::cli
