// A server's configuration against what a plan can serve: `plan check CONFIG`. Nothing is clamped: each broken rule is
// an error with the nearest value that would keep it.
#include "plan_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "byte_size.h"
#include "capacity_bill.h"
#include "fourfold/error.h"
#include "json_file.h"
#include "output.h"
#include "plan_report.h"

namespace fourfold::cli {
namespace {

constexpr int kBroken = static_cast<int>(ErrorCode::unsupported);
constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;

constexpr std::array kKnownKeys{"problem",
                                "model",
                                "format",
                                "device",
                                "sms",
                                "memory",
                                "tp",
                                "ep",
                                "capacity",
                                "capture_sizes",
                                "max_num_batched_tokens",
                                "max_num_seqs",
                                "num_speculative_tokens",
                                "workspace_limit",
                                "kv_bytes_per_token",
                                "kv_record_bytes",
                                "kv_layers",
                                "dcp",
                                "pool",
                                "other_weights",
                                "reserve",
                                "max_model_len"};

/// A broken rule.
struct Finding {
  std::string rule;
  std::string text;
  std::string key;  ///< of the configuration; empty when none alone would do
  Json nearest;     ///< its value nearest to what is there that keeps the rule
};

struct Config {
  PlanArguments arguments;
  std::int64_t capacity = 0;
  std::vector<std::int64_t> capture_sizes;
  std::optional<std::int64_t> max_num_batched_tokens, max_num_seqs, max_model_len;
  std::int64_t num_speculative_tokens = 0;
  std::string workspace_limit;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    json_ = read_json_file(path, path);
    if (!json_.is_object()) throw Error(ErrorCode::bad_input, fmt::format("{}: no JSON object", path));
    for (const auto& [key, value] : json_.items())
      if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end())
        throw Error(ErrorCode::bad_input, fmt::format("{}: key '{}' is not known; known are: {}", path,
                                                      without_controls(key), fmt::join(kKnownKeys, ", ")));
  }
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  std::optional<std::int64_t> number(const char* key, std::int64_t lowest) const {
    if (!has(key)) return std::nullopt;
    return number_of(json_[key], key, lowest);
  }
  std::string text(const char* key) const {
    if (!has(key)) return {};
    if (!json_[key].is_string()) refuse(key, json_[key], "a text");
    return json_[key].get<std::string>();
  }
  /// A size: a number of bytes or a text as "300MiB".
  std::string size(const char* key) const {
    if (!has(key)) return {};
    if (json_[key].is_number_integer()) return std::to_string(number_of(json_[key], key, 0, INT64_MAX));
    return text(key);
  }
  std::vector<std::int64_t> numbers(const char* key) const {
    std::vector<std::int64_t> list;
    if (!has(key)) return list;
    if (!json_[key].is_array()) refuse(key, json_[key], "a list of numbers");
    for (const Json& entry : json_[key]) list.push_back(number_of(entry, key, 1));
    return list;
  }

 private:
  [[noreturn]] void refuse(const char* key, const Json& value, const std::string& expected) const {
    throw Error(ErrorCode::bad_input,
                fmt::format("{}: '{}' is {}; expected is {}", path_, key,
                            value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80), expected));
  }
  std::int64_t number_of(const Json& value, const char* key, std::int64_t lowest,
                         std::int64_t highest = kMaxCount) const {
    const bool whole =
        value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
    if (!whole || value.get<std::int64_t>() < lowest || value.get<std::int64_t>() > highest)
      refuse(key, value, fmt::format("a whole number from {} to {}", lowest, highest));
    return value.get<std::int64_t>();
  }

  std::string path_;
  Json json_;
};

Config read_config(const std::string& path) {
  const Reader reader(path);
  Config config;
  PlanArguments& arguments = config.arguments;
  arguments.problem = reader.text("problem");
  arguments.model = reader.text("model");
  // A relative path is meant from where the file lies.
  if (!arguments.model.empty())
    arguments.model = (std::filesystem::path(path).parent_path() / arguments.model).string();
  arguments.format = reader.text("format");
  arguments.device = reader.text("device");
  arguments.sms = static_cast<int>(reader.number("sms", 1).value_or(0));
  arguments.memory = reader.size("memory");
  arguments.tp = static_cast<int>(reader.number("tp", 1).value_or(1));
  arguments.ep = static_cast<int>(reader.number("ep", 1).value_or(1));
  arguments.kv_bytes_per_token = reader.size("kv_bytes_per_token");
  arguments.kv_record_bytes = reader.size("kv_record_bytes");
  arguments.kv_layers = reader.number("kv_layers", 1).value_or(0);
  arguments.dcp = static_cast<int>(reader.number("dcp", 1).value_or(1));
  arguments.pool = reader.size("pool");
  arguments.other_weights = reader.size("other_weights");
  arguments.reserve = reader.size("reserve");
  config.capacity = reader.number("capacity", 1).value_or(0);
  arguments.max_tokens = config.capacity;
  config.capture_sizes = reader.numbers("capture_sizes");
  config.max_num_batched_tokens = reader.number("max_num_batched_tokens", 1);
  config.max_num_seqs = reader.number("max_num_seqs", 1);
  config.max_model_len = reader.number("max_model_len", 1);
  config.num_speculative_tokens = reader.number("num_speculative_tokens", 0).value_or(0);
  config.workspace_limit = reader.size("workspace_limit");
  return config;
}

void check_scheduler(const Config& config, std::int64_t capacity, std::vector<Finding>& findings) {
  for (const std::int64_t size : config.capture_sizes)
    if (size > capacity)
      findings.push_back(
          {"capture_beyond_capacity",
           fmt::format("capture_sizes has {}, beyond the capacity of {}: such a batch runs in slices and "
                       "never as captured; the largest valid size is {}",
                       size, capacity, capacity),
           "capture_sizes", capacity});
  if (config.max_num_batched_tokens && capacity > *config.max_num_batched_tokens)
    findings.push_back({"capacity_above_scheduler",
                        fmt::format("capacity is {}, above max_num_batched_tokens = {}: no batch is that large and the "
                                    "difference is reserved for nothing; use {}",
                                    capacity, *config.max_num_batched_tokens, *config.max_num_batched_tokens),
                        "capacity", *config.max_num_batched_tokens});
  // A size beyond the capacity is no window: it is never captured.
  std::int64_t window = 0;
  for (const std::int64_t size : config.capture_sizes)
    if (size <= capacity) window = std::max(window, size);
  if (!config.max_num_seqs || window == 0) return;
  const std::int64_t each = 1 + config.num_speculative_tokens;
  if (*config.max_num_seqs * each <= window) return;
  const std::int64_t needed = *config.max_num_seqs * each, sequences = window / each;
  std::string remedy = fmt::format("capture {}", needed);
  if (needed > capacity) remedy += " with a capacity as large";
  if (sequences > 0) remedy = fmt::format("use max_num_seqs = {} or {}", sequences, remedy);
  findings.push_back({"window_too_small",
                      fmt::format("max_num_seqs x (1 + num_speculative_tokens) = {} x {} = {}, above the captured "
                                  "window of {}: full batches leave the captured path; {}",
                                  *config.max_num_seqs, each, needed, window, remedy),
                      sequences > 0 ? "max_num_seqs" : "capture_sizes", sequences > 0 ? sequences : needed});
}

void check_memory(const Config& config, const PlanReport& report, std::vector<Finding>& findings) {
  const PlanRequest& request = report.request;
  const std::uint64_t arena = report.max_workspace_bytes();
  if (!config.workspace_limit.empty()) {
    const auto limit = static_cast<std::uint64_t>(byte_size("workspace_limit", config.workspace_limit));
    if (arena > limit) {
      const std::int64_t fits = largest_capacity(request, limit);
      findings.push_back(
          {"workspace_above_limit",
           fmt::format("the arena of capacity {} is {} bytes, {} above workspace_limit = {}; the largest "
                       "capacity that fits is {}",
                       request.problem.caps.max_tokens, arena, arena - limit, limit, fits),
           "capacity", fits > 0 ? Json(fits) : Json(nullptr)});
    }
  }
  if (!config.max_model_len || !request.pool || !request.kv.known()) return;
  const auto pool = static_cast<std::uint64_t>(*request.pool);
  const std::uint64_t cache = request.kv.bytes_of(*config.max_model_len);
  if (arena + cache <= pool) return;
  const std::int64_t tokens = request.kv.tokens(pool - std::min(arena, pool));
  findings.push_back(
      {"pool_below_context",
       fmt::format("one sequence of max_model_len = {} needs {} bytes of cache, and the pool of {} has {} "
                   "beside the arena; the longest that fits is {}",
                   *config.max_model_len, cache, pool, pool - std::min(arena, pool), tokens),
       "max_model_len", tokens});
}

}  // namespace

int check_config(const std::string& path, bool json) {
  const Config config = read_config(path);
  std::vector<Finding> findings;
  std::optional<PlanReport> report;
  try {
    report = make_report(plan_request(config.arguments), {});
    if (!report->refused.empty()) findings.push_back({"refused", report->refused, "", nullptr});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    findings.push_back({"refused", error.what(), "", nullptr});
  }
  const std::int64_t capacity = report ? report->caps().max_tokens : config.capacity;
  if (capacity > 0) check_scheduler(config, capacity, findings);
  if (report && !report->plans.empty()) check_memory(config, *report, findings);
  if (json) {
    Json list = Json::array();
    for (const Finding& finding : findings)
      list.push_back({{"rule", finding.rule},
                      {"text", finding.text},
                      {"key", finding.key.empty() ? Json(nullptr) : Json(finding.key)},
                      {"nearest", finding.nearest}});
    print_json({{"config", path},
                {"ok", findings.empty()},
                {"findings", std::move(list)},
                {"plan", report ? report_json(*report) : Json(nullptr)}});
  } else {
    std::string text;
    for (const Finding& finding : findings)
      text += marked("error", false) + fmt::format(" {}: {}\n", finding.rule, without_controls(finding.text));
    if (report && !report->plans.empty())
      text += fmt::format("{} tokens, arena {} bytes a rank\n", format_count(capacity),
                          format_count(static_cast<std::int64_t>(report->max_workspace_bytes())));
    text += findings.empty() ? "every rule is kept\n" : fmt::format("{} broken\n", findings.size());
    write_stdout(text);
  }
  return findings.empty() ? 0 : kBroken;
}

}  // namespace fourfold::cli
