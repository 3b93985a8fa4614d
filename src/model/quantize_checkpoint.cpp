// A checkpoint in, the same with 4-bit experts out: planned from the headers, then streamed matrix by matrix.
#include "model/quantize_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "core/float16.h"
#include "formats/dequantize.h"
#include "formats/format.h"
#include "model/checkpoint.h"
#include "model/checkpoint_writer.h"
#include "model/hf_config.h"
#include "model/json_text.h"
#include "model/linear_reader.h"
#include "model/model_load.h"
#include "model/quantized_layout.h"

namespace fourfold {
namespace {

namespace fs = std::filesystem;

/// What becomes of one source tensor.
struct Item {
  enum class Kind { copy, widen, quantise, matrix_shape } kind = Kind::copy;
  std::string source;            // tensor (copy) or module
  std::int64_t rows = 0, k = 0;  // of a matrix
  std::uint64_t source_bytes = 0;
  std::vector<PlannedTensor> outputs;
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const PlannedTensor& tensor : outputs) sum += tensor.bytes();
    return sum;
  }
};

/// "model.layers.0.mlp.experts.3.up_proj" of "....weight", empty for any other tensor.
std::string expert_module(const std::string& name) {
  constexpr std::string_view kEnding = ".weight";
  if (!name.ends_with(kEnding)) return {};
  const std::string module = name.substr(0, name.size() - kEnding.size());
  const std::size_t last = module.rfind('.');
  const std::size_t number = last == std::string::npos || last == 0 ? std::string::npos : module.rfind('.', last - 1);
  if (number == std::string::npos) return {};
  const std::string projection = module.substr(last + 1), digits = module.substr(number + 1, last - number - 1);
  const std::string parent = module.substr(0, number);
  for (const char* known : {"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})
    if (projection == known && !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos &&
        parent.ends_with("experts"))
      return module;
  return {};
}

bool ends_with_scale_of_fp8(const Checkpoint& checkpoint, const std::string& name) {
  for (const char* ending : {".weight_scale_inv", ".weight_scale"})
    if (name.ends_with(ending)) {
      const TensorInfo* weight =
          checkpoint.find(name.substr(0, name.size() - std::string_view(ending).size()) + ".weight");
      if (weight != nullptr && weight->dtype == DType::f8_e4m3) return true;
    }
  return false;
}

void check_not_quantised(const Checkpoint& checkpoint, const ModelConfig& config) {
  check(!config.quantization || config.quantization->method == "fp8", ErrorCode::unsupported,
        "{}: already quantised ({}); quantise the original checkpoint instead", checkpoint.path(),
        config.quantization ? config.quantization->method : "");
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const bool packed = tensor.name.ends_with(".weight_packed") || tensor.name.ends_with(".qweight") ||
                        tensor.name.ends_with("_proj_blocks") ||
                        (!expert_module(tensor.name).empty() && tensor.dtype == DType::u8);
    check(!packed, ErrorCode::unsupported,
          "{}: already quantised: tensor '{}'; quantise the original checkpoint instead", checkpoint.path(),
          tensor.name);
  }
}

/// The plan: every source tensor once, in name order.
std::vector<Item> plan_items(const Checkpoint& checkpoint, const ModelConfig& config, const QuantizeOptions& options,
                             CheckpointLayout layout) {
  std::vector<Item> items;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    Item item;
    item.source_bytes = tensor.bytes;
    const std::string module = expert_module(tensor.name);
    const bool fp8 = tensor.dtype == DType::f8_e4m3 && tensor.name.ends_with(".weight") && tensor.shape.size() == 2;
    if (!module.empty() || fp8) {
      item.source = tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size());
      check(tensor.shape.size() == 2, ErrorCode::bad_input, "{}: tensor '{}' has {} axes; expected are 2",
            checkpoint.path(), tensor.name, tensor.shape.size());
      item.rows = tensor.shape[0];
      item.k = tensor.shape[1];
      describe_linear(checkpoint, config, item.source, item.rows, item.k);
    }
    if (!module.empty()) {
      item.kind = Item::Kind::quantise;
      item.outputs = quantized_tensors(module, item.rows, item.k, options.format, layout);
      if (item.outputs.front().dtype == DType::i64) {  // an item of its own, see order_for_alignment
        Item shape = item;
        shape.kind = Item::Kind::matrix_shape;
        shape.source_bytes = 0;
        shape.outputs.resize(1);
        item.outputs.erase(item.outputs.begin());
        items.push_back(std::move(shape));
      }
    } else if (fp8) {  // one config cannot describe FP8 layers and 4-bit experts
      item.kind = Item::Kind::widen;
      item.outputs = {{tensor.name, DType::bf16, tensor.shape}};
    } else if (!ends_with_scale_of_fp8(checkpoint, tensor.name)) {
      item.source = tensor.name;
      item.outputs = {{tensor.name, tensor.dtype, tensor.shape}};
    }
    items.push_back(std::move(item));
  }
  return items;
}

/// Items of a shard so that every tensor starts at a multiple of its element size: an item whose bytes are a multiple
/// of 8 disturbs nobody behind it. Only weight_shape needs 8, and is an item of 16 bytes.
void order_for_alignment(std::span<Item> items) {
  const auto rank = [](const Item& item) {
    const std::uint64_t bytes = item.bytes();
    return bytes % 8 == 0 ? 0 : bytes % 4 == 0 ? 1 : bytes % 2 == 0 ? 2 : 3;
  };
  std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) { return rank(a) < rank(b); });
}

/// Running sums of the report's error.
struct ErrorSums {
  double squared_error = 0, squared = 0, largest = 0;
  void add(std::span<const float> before, std::span<const float> after) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double error = std::abs(static_cast<double>(before[i]) - static_cast<double>(after[i]));
      squared_error += error * error;
      squared += static_cast<double>(before[i]) * static_cast<double>(before[i]);
      largest = std::max(largest, error);
    }
  }
};

/// Streams items into shard files.
class ItemWriter {
 public:
  ItemWriter(const Checkpoint& checkpoint, const ModelConfig& config, const QuantizeOptions& options,
             CheckpointLayout layout)
      : checkpoint_(checkpoint), config_(config), options_(options), layout_(layout) {}

  void write(const Item& item, ShardWriter& shard) {
    switch (item.kind) {
      case Item::Kind::copy:
        if (!item.outputs.empty()) copy(item, shard);
        break;
      case Item::Kind::widen:
        widen(item, shard);
        break;
      case Item::Kind::quantise:
        quantise(item, shard);
        break;
      case Item::Kind::matrix_shape: {
        const std::int64_t shape[2] = {item.rows, item.k};
        shard.append(std::as_bytes(std::span(shape)));
        break;
      }
    }
  }
  const ErrorSums& errors() const noexcept { return errors_; }
  std::int64_t matrices() const noexcept { return matrices_; }

 private:
  void copy(const Item& item, ShardWriter& shard) {
    constexpr std::uint64_t kChunk = 8u << 20;
    for (std::uint64_t at = 0; at < item.source_bytes; at += kChunk) {
      chunk_.resize(std::min(kChunk, item.source_bytes - at));
      checkpoint_.read_range(item.source, at, chunk_);
      shard.append(chunk_);
    }
  }
  void read(const Item& item) {
    weights_.resize(static_cast<std::size_t>(checked_mul(item.rows, item.k, item.source.c_str())));
    read_linear_f32(checkpoint_, config_, item.source, item.rows, item.k, weights_);
  }
  void widen(const Item& item, ShardWriter& shard) {
    read(item);
    std::vector<std::uint16_t> rounded(weights_.size());
    for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = float_to_bf16(weights_[i]);
    shard.append(std::as_bytes(std::span(rounded)));
  }
  void quantise(const Item& item, ShardWriter& shard) {
    read(item);
    QuantizedMatrix matrix;
    try {
      matrix = quantize_matrix(weights_, item.rows, item.k, options_.format, options_.four_over_six);
    } catch (const Error& error) {
      throw Error(error.code(), checkpoint_.path() + ": '" + item.source + "': " + error.what());
    }
    std::vector<std::vector<std::byte>> tensors = quantized_bytes(matrix, layout_);
    // The shape of an int4 matrix is an item of its own.
    for (std::size_t i = tensors.size() - item.outputs.size(); i < tensors.size(); ++i) shard.append(tensors[i]);
    tensors.clear();
    if (options_.format.format == WeightFormat::nvfp4)
      matrix.global_scale = read_back_global(matrix.global_scale, layout_);
    restored_.resize(weights_.size());
    dequantize(matrix.source(), item.rows, item.k, options_.format, restored_.data());
    errors_.add(weights_, restored_);
    ++matrices_;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const QuantizeOptions& options_;
  CheckpointLayout layout_;
  std::vector<std::byte> chunk_;
  std::vector<float> weights_, restored_;
  ErrorSums errors_;
  std::int64_t matrices_ = 0;
};

/// Names of the linear layers that stay as they are: what other readers need to be told.
std::vector<std::string> ignored_modules(const std::vector<Item>& items) {
  std::vector<std::string> names{"lm_head"};
  for (const Item& item : items) {
    if (item.kind == Item::Kind::quantise || item.outputs.size() != 1) continue;
    const PlannedTensor& tensor = item.outputs.front();
    if (tensor.shape.size() != 2 || !tensor.name.ends_with(".weight")) continue;
    names.push_back(tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size()));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::map<std::string, std::string> shard_metadata(const std::vector<Item>& items, const FormatSpec& spec) {
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  for (const Item& item : items) {
    const std::int64_t group = spec.group_size;
    if (item.kind != Item::Kind::quantise || group == 0 || item.k % group == 0) continue;
    metadata["fourfold.short_last_group"] =
        fmt::format("rows of {} in groups of {}: the last group has {}", item.k, group, item.k % group);
  }
  return metadata;
}

bool is_companion_file(const std::string& name) {
  for (const char* start : {"tokenizer", "generation_config.json", "special_tokens_map.json", "added_tokens.json",
                            "vocab.", "merges.txt", "chat_template", "preprocessor_config.json", "LICENSE"})
    if (name.starts_with(start)) return true;
  return name.ends_with(".tiktoken") || name.ends_with(".model");
}

void copy_companion_files(const fs::path& source, const fs::path& destination) {
  std::error_code error;
  fs::directory_iterator entry(source, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!entry->is_regular_file(ignored) || !is_companion_file(name)) continue;
    OutputFile output = OutputFile::create(destination / name);
    output.write(read_file(entry->path(), std::numeric_limits<std::uint64_t>::max()));
    output.close();
  }
  check(!error, ErrorCode::bad_input, "cannot list '{}': {}", source.string(), error.message());
}

void write_text(const fs::path& path, const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2) + "\n";
  OutputFile output = OutputFile::create(path);
  output.write(text.data(), text.size());
  output.close();
}

void write_configs(const std::string& source, const fs::path& folder, const FormatSpec& spec, CheckpointLayout layout,
                   const std::vector<std::string>& ignored) {
  // Keys keep their order; the text was checked when the config was loaded.
  auto config = nlohmann::ordered_json::parse(read_text_file(fs::path(source) / "config.json", kMaxJsonBytes));
  config["quantization_config"] = quantization_config_json(spec, layout, ignored);
  write_text(folder / "config.json", config);
  if (layout == CheckpointLayout::modelopt) write_text(folder / "hf_quant_config.json", hf_quant_config_json(ignored));
}

/// A checkpoint of a known architecture must be one that would load: names, shapes, dtypes and config agree. Others
/// are quantised by the names of their tensors alone.
void check_loads(const std::string& source, const ModelConfig& config) {
  const std::vector<std::string> known = known_architectures();
  if (std::find(known.begin(), known.end(), config.architecture) == known.end()) return;
  ModelOptions options;
  options.memory_map = false;
  ModelLoader(source, cpu_backend(), options);
}

CheckpointLayout chosen_layout(const QuantizeOptions& options) {
  check_format(options.format);
  const bool nvfp4 = options.format.format == WeightFormat::nvfp4;
  const CheckpointLayout layout =
      options.layout.value_or(nvfp4 ? CheckpointLayout::modelopt : CheckpointLayout::compressed_tensors);
  check(nvfp4 || layout != CheckpointLayout::modelopt, ErrorCode::usage,
        "layout modelopt is for nvfp4; {} is written as compressed-tensors", weight_format_name(options.format.format));
  check(nvfp4 || !options.four_over_six, ErrorCode::usage,
        "four over six is a choice of nvfp4 blocks; the format is {}", weight_format_name(options.format.format));
  return layout;
}

}  // namespace

QuantizeReport quantize_checkpoint_in_shards(const std::string& source, const std::string& destination,
                                             const QuantizeOptions& options,
                                             const std::function<void(const QuantizeProgress&)>& progress,
                                             std::uint64_t max_shard_bytes) {
  const auto start = std::chrono::steady_clock::now();
  const CheckpointLayout layout = chosen_layout(options);
  // Plain reads: what has been read does not stay in this process's memory.
  const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(source, false);
  check(checkpoint->is_folder(), ErrorCode::usage, "{}: a checkpoint folder is needed: config.json says what it is",
        source);
  const ModelConfig config = load_model_config(source);
  check_not_quantised(*checkpoint, config);
  check_loads(source, config);
  std::vector<Item> items = plan_items(*checkpoint, config, options, layout);
  check(std::any_of(items.begin(), items.end(), [](const Item& i) { return i.kind == Item::Kind::quantise; }),
        ErrorCode::unsupported,
        "{}: no expert matrix found; they are named '...experts.<n>.<gate_proj|up_proj|down_proj>.weight'", source);

  AtomicFolder folder{fs::path(destination)};
  std::vector<std::uint64_t> sizes;
  QuantizeReport report;
  for (const Item& item : items) {
    const bool expert = item.kind == Item::Kind::quantise || item.kind == Item::Kind::matrix_shape;
    sizes.push_back(item.bytes());
    report.bytes_before += item.source_bytes;
    report.bytes_after += sizes.back();
    report.expert_bytes_before += expert ? item.source_bytes : 0;
    report.expert_bytes_after += expert ? sizes.back() : 0;
  }
  const std::vector<std::size_t> firsts = split_into_shards(sizes, max_shard_bytes);
  const std::map<std::string, std::string> metadata = shard_metadata(items, options.format);
  const std::vector<std::string> ignored = ignored_modules(items);
  ItemWriter writer(*checkpoint, config, options, layout);
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  QuantizeProgress done{{}, 0, report.bytes_before};
  for (std::size_t s = 0; s < firsts.size(); ++s) {
    const std::size_t end = s + 1 < firsts.size() ? firsts[s + 1] : items.size();
    const std::span<Item> group = std::span(items).subspan(firsts[s], end - firsts[s]);
    order_for_alignment(group);
    done.shard = shard_name(s, firsts.size());
    std::vector<PlannedTensor> tensors;
    for (const Item& item : group) tensors.insert(tensors.end(), item.outputs.begin(), item.outputs.end());
    for (const PlannedTensor& tensor : tensors) weight_map[tensor.name] = done.shard;
    ShardWriter shard((folder.path() / done.shard).string(), std::move(tensors), metadata);
    for (const Item& item : group) {
      writer.write(item, shard);
      done.bytes_done += item.source_bytes;
      if (progress) progress(done);
    }
    shard.close();
  }
  if (firsts.size() > 1) {
    nlohmann::ordered_json index = nlohmann::ordered_json::object();
    index["metadata"]["total_size"] = report.bytes_after;
    index["weight_map"] = std::move(weight_map);
    write_text(folder.path() / "model.safetensors.index.json", index);
  }
  write_configs(source, folder.path(), options.format, layout, ignored);
  copy_companion_files(source, folder.path());
  folder.commit();

  const ErrorSums& errors = writer.errors();
  report.matrices = writer.matrices();
  report.relative_rms_error = errors.squared > 0 ? std::sqrt(errors.squared_error / errors.squared) : 0;
  report.max_abs_error = errors.largest;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

QuantizeReport quantize_checkpoint(const std::string& source, const std::string& destination,
                                   const QuantizeOptions& options,
                                   const std::function<void(const QuantizeProgress&)>& progress) {
  return quantize_checkpoint_in_shards(source, destination, options, progress, kMaxShardBytes);
}

}  // namespace fourfold
