// fourfold eval: how well a model predicts a text (perplexity; docs/cli.md has the definition).
#include <fmt/format.h>

#include "command.h"
#include "fourfold/model.h"
#include "model_options.h"
#include "output.h"
#include "progress.h"
#include "text_input.h"

namespace fourfold::cli {
namespace {

struct Options {
  ModelChoice model;
  std::string text_file;
  std::int64_t window = 512;
  bool json = false;
};

int run_eval(const Options& options) {
  const std::string text = read_text(options.text_file);
  Fingerprint fingerprint;
  const std::unique_ptr<Model> model = load_model(options.model, &fingerprint);
  EvalResult result;
  {
    Progress progress("eval", Progress::Unit::items, false);
    result = evaluate(*model, text, options.window, [&](std::int64_t done, std::int64_t total) {
      progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total), "windows");
    });
  }
  if (options.json) {
    print_json({{"mean_nll", result.mean_nll},
                {"perplexity", result.perplexity},
                {"tokens", result.tokens},
                {"window", result.window},
                {"format", model->format_text()},
                {"device", options.model.device},
                {"seconds", result.seconds},
                {"fingerprint", fingerprint_json(fingerprint)}});
    return 0;
  }
  write_stdout(
      fmt::format("{}: mean nll {:.6f}, perplexity {:.4f} over {} tokens in windows of {} (experts {}, {} "
                  "activations, {})\n",
                  options.model.folder, result.mean_nll, result.perplexity, format_count(result.tokens), result.window,
                  model->format_text(), options.model.activations, format_duration(result.seconds)));
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("eval", "measure a model's perplexity on a text");
  add_model_options(*verb, options->model);
  verb->add_option("--text", options->text_file, "a file of UTF-8 text, - for stdin; special tokens are recognised")
      ->required();
  verb->add_option("--window", options->window, "tokens that are predicted from an empty cache each")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold eval models/moe-13m --text models/moe-13m/heldout.txt\n"
      "  fourfold eval moe-13m-nvfp4 --text models/moe-13m/heldout.txt --activations f32 --json");
  verb->callback([options, &command] { command.run = [options] { return run_eval(*options); }; });
}

}  // namespace fourfold::cli
