// fourfold inspect: what a checkpoint holds, from its headers alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.h"
#include "fourfold/model.h"
#include "output.h"

namespace fourfold::cli {
namespace {

struct Options {
  std::string path;
  bool tensors = false;
  bool json = false;
};

std::string shape_text(const TensorInfo& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }

void print_inspect_json(const CheckpointInfo& info, bool tensors) {
  Json json{{"path", info.path},
            {"architecture", info.architecture},
            {"layers", info.layers},
            {"hidden", info.hidden},
            {"vocabulary", info.vocabulary},
            {"experts", info.experts},
            {"top_k", info.top_k},
            {"expert_intermediate", info.expert_intermediate},
            {"quantization", info.quantization},
            {"tensors", info.tensors.size()},
            {"total_bytes", info.total_bytes},
            {"expert_bytes", info.expert_bytes},
            {"bytes_by_dtype", Json::object()}};
  for (const auto& [dtype, bytes] : info.bytes_by_dtype) json["bytes_by_dtype"][dtype] = bytes;
  if (tensors) {
    Json list = Json::array();
    for (const TensorInfo& tensor : info.tensors)
      list.push_back({{"name", tensor.name},
                      {"file", tensor.file},
                      {"dtype", dtype_name(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"bytes", tensor.bytes}});
    json["tensor_list"] = std::move(list);
  }
  print_json(json);
}

std::string summary_text(const CheckpointInfo& info) {
  std::string text = info.path + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", name, value);
  };
  if (info.has_config) {
    line("architecture", info.architecture);
    line("layers", format_count(info.layers));
    line("hidden", format_count(info.hidden));
    line("vocabulary", format_count(info.vocabulary));
    if (info.experts > 0)
      line("experts", fmt::format("{} of intermediate {}, top-{}", format_count(info.experts),
                                  format_count(info.expert_intermediate), info.top_k));
  }
  if (!info.quantization.empty()) line("expert format", info.quantization);
  line("tensors", format_count(static_cast<std::int64_t>(info.tensors.size())));
  line("bytes", fmt::format("{} ({})", format_count(static_cast<std::int64_t>(info.total_bytes)),
                            format_bytes(info.total_bytes)));
  if (info.expert_bytes > 0)
    line("in experts", fmt::format("{} ({:.1f} %)", format_bytes(info.expert_bytes),
                                   100.0 * static_cast<double>(info.expert_bytes) /
                                       static_cast<double>(std::max<std::uint64_t>(info.total_bytes, 1))));
  for (const auto& [dtype, bytes] : info.bytes_by_dtype) line(("as " + dtype).c_str(), format_bytes(bytes));
  return text;
}

int run_inspect(const Options& options) {
  const CheckpointInfo info = inspect_checkpoint(options.path);
  if (options.json) {
    print_inspect_json(info, options.tensors);
    return 0;
  }
  std::string text = summary_text(info);
  if (options.tensors) {
    Table table({"tensor", "dtype", "shape", ">bytes", "file"});
    for (const TensorInfo& tensor : info.tensors)
      table.add({tensor.name, std::string(dtype_name(tensor.dtype)), shape_text(tensor),
                 format_count(static_cast<std::int64_t>(tensor.bytes)), tensor.file});
    text += "\n" + table.text();
  }
  write_stdout(text);
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, Command& command) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("inspect", "say what a checkpoint holds (reads headers only)");
  verb->add_option("path", options->path, "a checkpoint folder or one .safetensors file")->required();
  verb->add_flag("--tensors", options->tensors, "list every tensor");
  add_json_flag(*verb, options->json);
  verb->footer(
      "Examples:\n"
      "  fourfold inspect models/moe-13m\n"
      "  fourfold inspect models/moe-13m/model-00001-of-00002.safetensors --tensors\n"
      "  fourfold inspect models/moe-13m --json");
  verb->callback([options, &command] { command.run = [options] { return run_inspect(*options); }; });
}

}  // namespace fourfold::cli
