// fourfold quantize: write a checkpoint again with 4-bit experts.
#include <fmt/format.h>

#include <cstdio>

#include "command.h"
#include "fourfold/error.h"
#include "fourfold/model.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

namespace fourfold::cli {
namespace {

struct Options {
  std::string source;
  std::string destination;
  std::string format;
  std::string group_size;
  std::string layout;
  bool asymmetric = false;
  bool four_over_six = false;
  bool json = false;
};

// The group size that `text` asks for: a number, "row" for a whole row (0), or the format's own when empty.
std::int64_t group_size(const std::string& text, WeightFormat format) {
  const std::int64_t fixed = format == WeightFormat::nvfp4 ? 16 : format == WeightFormat::mxfp4 ? 32 : -1;
  if (text.empty()) return fixed > 0 ? fixed : 32;  // int4: the most common size in published checkpoints is 32 or 128
  for (const std::int64_t size : {16, 32, 64, 96, 128, 256, 0}) {
    if (text != (size == 0 ? std::string("row") : std::to_string(size))) continue;
    if (fixed > 0 && size != fixed)
      throw Error(ErrorCode::usage, fmt::format("--group-size {}: {} has groups of {} by definition; leave the option "
                                                "out, or use --format int4",
                                                text, weight_format_name(format), fixed));
    return size;
  }
  throw Error(ErrorCode::usage,
              fmt::format("--group-size {}: accepted are 16, 32, 64, 96, 128, 256 and row (one group per row)", text));
}

QuantizeOptions quantize_options(const Options& options) {
  QuantizeOptions result;
  const WeightFormat format = options.format == "nvfp4"   ? WeightFormat::nvfp4
                              : options.format == "mxfp4" ? WeightFormat::mxfp4
                                                          : WeightFormat::int4;
  result.format = {format, group_size(options.group_size, format), options.asymmetric};
  if (options.asymmetric && format != WeightFormat::int4)
    throw Error(ErrorCode::usage,
                fmt::format("--asymmetric: {} has no zero points; use --format int4", options.format));
  if (options.four_over_six && format != WeightFormat::nvfp4)
    throw Error(ErrorCode::usage,
                fmt::format("--four-over-six: a block rule of nvfp4, not of {}; use --format nvfp4", options.format));
  result.four_over_six = options.four_over_six;
  if (options.layout == "modelopt") {
    if (format != WeightFormat::nvfp4)
      throw Error(ErrorCode::usage, fmt::format("--layout modelopt: written for nvfp4 only; {} is written as "
                                                "compressed-tensors",
                                                options.format));
    result.layout = CheckpointLayout::modelopt;
  } else if (options.layout == "compressed-tensors") {
    result.layout = CheckpointLayout::compressed_tensors;
  }
  return result;
}

std::string format_name(const QuantizeOptions& options) {
  std::string text(weight_format_name(options.format.format));
  if (options.four_over_six) text += " four-over-six";
  if (options.format.format == WeightFormat::int4)
    text += options.format.group_size == 0 ? std::string(" g=row") : fmt::format(" g{}", options.format.group_size);
  if (options.format.zero_points) text += " asymmetric";
  return text;
}

int run_quantize(const Options& options) {
  const QuantizeOptions how = quantize_options(options);
  const InterruptGuard interrupt;
  QuantizeReport report;
  {
    Progress progress("quantize", Progress::Unit::bytes, true);
    report = quantize_checkpoint(options.source, options.destination, how, [&](const QuantizeProgress& state) {
      interrupt.poll();
      progress.update(state.bytes_done, state.bytes_total, state.shard);
    });
  }
  if (options.json) {
    print_json({{"source", options.source},
                {"destination", options.destination},
                {"format", format_name(how)},
                {"bytes_before", report.bytes_before},
                {"bytes_after", report.bytes_after},
                {"expert_bytes_before", report.expert_bytes_before},
                {"expert_bytes_after", report.expert_bytes_after},
                {"matrices", report.matrices},
                {"relative_rms_error", report.relative_rms_error},
                {"max_abs_error", report.max_abs_error},
                {"seconds", report.seconds}});
    return 0;
  }
  Table table({"", ">before", ">after", ">ratio"});
  const auto row = [&](const char* name, std::uint64_t before, std::uint64_t after) {
    const double ratio = after > 0 ? static_cast<double>(before) / static_cast<double>(after) : 0;
    table.add({name, format_bytes(before), format_bytes(after), fmt::format("{:.2f}x", ratio)});
  };
  row("checkpoint", report.bytes_before, report.bytes_after);
  row("experts", report.expert_bytes_before, report.expert_bytes_after);
  write_stdout(fmt::format("{}: {} expert matrices as {} in {}\n{}  relative rms error {:.4f}, largest error {:.4g}\n",
                           options.destination, format_count(report.matrices), format_name(how),
                           format_duration(report.seconds), table.text(), report.relative_rms_error,
                           report.max_abs_error));
  return 0;
}

}  // namespace

void add_quantize_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("quantize", "write a checkpoint again with 4-bit experts");
  verb->add_option("source", options->source, "a checkpoint folder with bf16, fp16, fp32 or fp8 experts")->required();
  verb->add_option("-o,--output", options->destination, "the folder to write; must be new or empty")->required();
  verb->add_option("--format", options->format, "nvfp4, mxfp4 or int4")
      ->required()
      ->check(CLI::IsMember({"nvfp4", "mxfp4", "int4"}));
  verb->add_option("--group-size", options->group_size,
                   "int4: weights that share a scale: 16, 32, 64, 96, 128, 256 or row (default 32)");
  verb->add_flag("--asymmetric", options->asymmetric, "int4: a zero point per group");
  verb->add_flag("--four-over-six", options->four_over_six,
                 "nvfp4: scale each block to a maximum of 4 or 6, whichever has the smaller squared error");
  verb->add_option("--layout", options->layout,
                   "tensor names to write: modelopt (nvfp4, its default) or "
                   "compressed-tensors (the default of the others)")
      ->check(CLI::IsMember({"modelopt", "compressed-tensors"}));
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold quantize models/moe-13m -o moe-13m-nvfp4 --format nvfp4 --four-over-six\n"
      "  fourfold quantize models/moe-13m -o moe-13m-int4 --format int4 --group-size 128 --asymmetric");
  verb->callback([options, &command] { command.run = [options] { return run_quantize(*options); }; });
}

}  // namespace fourfold::cli
