// fourfold generate: text out of a model, streamed, with its speed and memory.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "command.h"
#include "fourfold/error.h"
#include "fourfold/model.h"
#include "model_options.h"
#include "output.h"
#include "text_input.h"

namespace fourfold::cli {
namespace {

struct Options {
  ModelChoice model;
  std::string prompt;
  std::string prompt_file;
  std::string ids;
  std::int64_t count = 128;
  SamplingOptions sampling;
  bool json = false;
};

// The reader of our pipe has gone: there is nobody to generate for.
struct ReaderGone {};

void check_sampling(const SamplingOptions& sampling) {
  const auto refuse = [](bool bad, const char* name, double value, const char* rule) {
    if (bad) throw Error(ErrorCode::usage, fmt::format("{} {}: must be {}", name, value, rule));
  };
  const SamplingOptions& s = sampling;
  refuse(!(std::isfinite(s.temperature) && s.temperature >= 0), "--temperature", s.temperature,
         "0 (greedy) or a positive number");
  refuse(s.top_k < 0, "--top-k", static_cast<double>(s.top_k), "0 (off) or a positive count");
  refuse(!(s.top_p > 0 && s.top_p <= 1), "--top-p", s.top_p, "above 0 and at most 1 (off)");
  refuse(!(s.min_p >= 0 && s.min_p <= 1), "--min-p", s.min_p, "0 (off) to 1");
  refuse(!(std::isfinite(s.repetition_penalty) && s.repetition_penalty > 0), "--repetition-penalty",
         s.repetition_penalty, "a positive number (1 is off)");
}

std::vector<std::int32_t> prompt_ids(const Options& options, const std::string& text, const Model& model) {
  if (!options.ids.empty()) return parse_ids(options.ids);
  if (model.tokenizer() == nullptr)
    throw Error(ErrorCode::bad_input, fmt::format("{}: no tokenizer.json, so text cannot be read; give token ids "
                                                  "with --ids 1,2,3",
                                                  options.model.folder));
  std::vector<std::int32_t> ids = model.tokenizer()->encode(text);
  if (ids.empty()) throw Error(ErrorCode::usage, "the prompt is empty: 0 tokens; give at least one character of text");
  return ids;
}

int run_generate(const Options& options) {
  check_sampling(options.sampling);
  std::string text;
  if (!options.prompt_file.empty()) {
    text = read_text(options.prompt_file);
  } else if (options.ids.empty()) {
    text = options.prompt;
    check_utf8(text, "--prompt");
  }
  if (!options.ids.empty()) parse_ids(options.ids);  // a usage error should not wait for the model
  Fingerprint fingerprint;
  const std::unique_ptr<Model> model = load_model(options.model, &fingerprint);
  const std::vector<std::int32_t> ids = prompt_ids(options, text, *model);
  GenerateResult result;
  try {
    result = generate(*model, ids, options.count, options.sampling, [&](std::string_view piece) {
      if (!options.json && !write_stdout(piece)) throw ReaderGone{};
    });
  } catch (const ReaderGone&) {
    return 0;
  }
  if (options.json) {
    print_json({{"prompt_ids", result.prompt_ids},
                {"ids", result.ids},
                {"text", result.text},
                {"prefill_tokens_per_second", result.prefill_tokens_per_second},
                {"decode_tokens_per_second", result.decode_tokens_per_second},
                {"peak_memory_bytes", result.peak_memory_bytes},
                {"load_seconds", result.load_seconds},
                {"fingerprint", fingerprint_json(fingerprint)}});
    return 0;
  }
  write_stdout("\n");
  if (model->tokenizer() == nullptr) {
    std::string list;
    for (const std::int32_t id : result.ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    write_stdout(list + "\n");
  }
  std::fputs(fmt::format("experts {}, {} prompt tokens at {:.0f} tokens/s, {} new tokens at {:.0f} tokens/s, "
                         "peak memory {}, loaded in {}\n",
                         model->format_text(), result.prompt_ids.size(), result.prefill_tokens_per_second,
                         result.ids.size(), result.decode_tokens_per_second, format_bytes(result.peak_memory_bytes),
                         format_duration(result.load_seconds))
                 .c_str(),
             stderr);
  return 0;
}

void add_sampling_options(CLI::App& verb, SamplingOptions& sampling) {
  verb.add_option("--temperature", sampling.temperature, "0 is greedy")->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "keep the k likeliest tokens; 0 is off")->capture_default_str();
  verb.add_option("--top-p", sampling.top_p, "keep the likeliest tokens up to this probability")->capture_default_str();
  verb.add_option("--min-p", sampling.min_p, "drop tokens below this share of the likeliest")->capture_default_str();
  verb.add_option("--repetition-penalty", sampling.repetition_penalty, "1 is off")->capture_default_str();
  verb.add_option("--seed", sampling.seed, "same seed, same text")->check(seed_check())->capture_default_str();
}

}  // namespace

void add_generate_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("generate", "continue a text with a model");
  add_model_options(*verb, options->model);
  CLI::Option_group* prompt = verb->add_option_group("prompt", "what to continue; exactly one of");
  prompt->add_option("--prompt", options->prompt, "the text itself");
  prompt->add_option("--prompt-file", options->prompt_file, "a file of UTF-8 text, - for stdin");
  prompt->add_option("--ids", options->ids, "token ids as 1,2,3: for a model without a tokenizer");
  prompt->require_option(1);
  verb->add_option("-n,--tokens", options->count, "tokens to make at most")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  add_sampling_options(*verb, options->sampling);
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold generate models/moe-13m --prompt 'In the beginning' -n 80\n"
      "  fourfold generate models/moe-13m --prompt-file - --temperature 0.8 --top-p 0.95 --seed 7 < prompt.txt\n"
      "  fourfold generate tests/data/tiny/qwen3_moe --ids 1,2,3 -n 16 --activations f32 --json");
  verb->callback([options, &command] { command.run = [options] { return run_generate(*options); }; });
}

}  // namespace fourfold::cli
