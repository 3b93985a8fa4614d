// The program: reads the arguments, runs one verb, and turns every failure into a message and an exit code.
#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "command.h"
#include "fourfold/error.h"
#include "fourfold/settings.h"
#include "fourfold_version.h"
#include "interrupt.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  fourfold inspect models/moe-13m\n"
    "  fourfold quantize models/moe-13m -o moe-13m-nvfp4 --format nvfp4\n"
    "  fourfold generate moe-13m-nvfp4 --prompt 'In the beginning' -n 80\n"
    "  fourfold plan 't1,64 k8 e128 h2048 i768 nvfp4 bf16 silu'\n"
    "  fourfold VERB --help\n"
    "\n"
    "Exit codes: 0 fine, 2 usage, 3 refused or unsupported, 4 bad input, 5 numbers differ, 6 regression,\n"
    "7 no such device, 70 internal.";

// Asked of the bare arguments, because an error can come before they are parsed. A flag may have a value, as in
// --json=true; which values mean no is the parser's business, and an object too many harms nobody.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--json" || (argument.starts_with("--json=") && argument != "--json=false")) return true;
  }
  return false;
}

int report_error(int code, const std::string& text, bool json) {
  std::fprintf(stderr, "fourfold: %s\n", without_controls(text).c_str());
  if (json) {
    try {
      print_json(Json{{"error", {{"code", code}, {"text", text}}}});
    } catch (const std::exception&) {
      // stdout is what failed; the message is on stderr and the code stands.
    }
  }
  return code;
}

// The parser would only say that a verb is missing.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string known;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == argv[1]) return;
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  throw Error(ErrorCode::usage, fmt::format("'{}' is no verb; the verbs are: {}", argv[1], known));
}

int parse_and_run(int argc, char** argv, bool json) {
  CLI::App app("Fourfold: Mixture-of-Experts layers with 4-bit weights", "fourfold");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("fourfold " FOURFOLD_VERSION " (" FOURFOLD_COMMIT ")"));
  app.require_subcommand(1);
  Command command;
  add_inspect_command(app, command);
  add_quantize_command(app, command);
  add_generate_command(app, command);
  add_eval_command(app, command);
  add_plan_command(app, command);
  add_bench_command(app, command);
  add_verify_command(app, command);
  add_kernels_command(app, command);
  add_doctor_command(app, command);
  refuse_unknown_verb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
    return 0;
  } catch (const CLI::CallForVersion&) {
    write_stdout(app.version() + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    const int code = static_cast<int>(ErrorCode::usage);
    return report_error(code, std::string(error.what()) + "; see fourfold --help and fourfold VERB --help", json);
  }
  // Read before any verb, so that a wrong setting is an error whatever the verb; its threads serve all parallel work.
  const Settings settings = settings_from_environment();
  if (settings.threads > 0) omp_set_num_threads(settings.threads);
  return command.run();
}

}  // namespace
}  // namespace fourfold::cli

int main(int argc, char** argv) {
  using namespace fourfold;
  using namespace fourfold::cli;
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is then a failed write, with a message and a clean end
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is seen where we write, not as a death by signal
  const bool json = wants_json(argc, argv);
  const int internal = static_cast<int>(ErrorCode::internal);
  try {
    return parse_and_run(argc, argv, json);
  } catch (const Error& error) {
    return report_error(error.exit_code(), error.what(), json);
  } catch (const Interrupted& interrupted) {
    return report_error(128 + interrupted.signal, "interrupted; nothing half-written is left behind", json);
  } catch (const std::bad_alloc&) {
    return report_error(static_cast<int>(ErrorCode::unavailable),
                        "out of memory; use a smaller problem or a machine with more memory", json);
  } catch (const std::exception& error) {
    return report_error(internal, std::string("internal fault: ") + error.what(), json);
  }
}
