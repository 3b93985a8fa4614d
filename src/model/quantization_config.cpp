// The schemas of quantization_config, and the rule by which a module is left out.
#include "model/quantization_config.h"

#include <pcre2.h>

#include <cmath>
#include <unordered_set>

#include "core/check.h"
#include "model/json_text.h"
#include "model/message_text.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

const Json* find(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const Json& object, const char* key, const std::string& file) {
  const Json* value = find(object, key);
  if (value == nullptr) return {};
  check(value->is_string(), ErrorCode::bad_input, "{}: '{}' is {}; expected is a string", file, key, shown(*value));
  return value->get<std::string>();
}

std::int64_t integer_of(const Json& object, const char* key, std::int64_t fallback, const std::string& file) {
  const Json* value = find(object, key);
  if (value == nullptr) return fallback;
  const bool ok = value->is_number_integer() && *value >= -1 && *value <= (std::int64_t{1} << 40);
  check(ok, ErrorCode::bad_input, "{}: '{}' is {}; expected is an integer", file, key, shown(*value));
  return value->get<std::int64_t>();
}

bool boolean_of(const Json& object, const char* key, bool fallback, const std::string& file) {
  const Json* value = find(object, key);
  if (value == nullptr) return fallback;
  check(value->is_boolean(), ErrorCode::bad_input, "{}: '{}' is {}; expected is true or false", file, key,
        shown(*value));
  return value->get<bool>();
}

void append_names(const Json& object, const char* key, const std::string& file, std::vector<std::string>& names) {
  const Json* value = find(object, key);
  if (value == nullptr) return;
  check(value->is_array(), ErrorCode::bad_input, "{}: '{}' is {}; expected is a list of strings", file, key,
        shown(*value));
  for (const Json& entry : *value) {
    check(entry.is_string(), ErrorCode::bad_input, "{}: '{}' holds {}; expected are strings", file, key, shown(entry));
    names.push_back(entry.get<std::string>());
  }
}

/// EXL3 writes the average over its layers, 3.42 for instance: rounded up, so that a price is never too low.
std::int64_t average_bits(const Json& object, const std::string& file) {
  const Json* value = find(object, "bits");
  if (value == nullptr) return 0;
  const bool ok = value->is_number() && *value >= 1 && *value <= 16;
  check(ok, ErrorCode::bad_input, "{}: 'bits' is {}; expected is a number from 1 to 16", file, shown(*value));
  return static_cast<std::int64_t>(std::ceil(value->get<double>()));
}

/// Written -1 in GPTQ and AWQ configs: the whole row, which is 0 here.
std::int64_t whole_row_as_zero(std::int64_t group_size) { return group_size == -1 ? 0 : group_size; }

/// compressed-tensors, and ModelOpt's newer config.json: the weights' scheme of the only group.
void read_config_groups(const Json& object, const std::string& file, QuantizationConfig& config) {
  const Json* groups = find(object, "config_groups");
  if (groups == nullptr) return;
  check(groups->is_object(), ErrorCode::bad_input, "{}: 'config_groups' is {}; expected is an object", file,
        shown(*groups));
  bool first = true;
  for (const auto& [name, group] : groups->items()) {
    const std::string where = fmt::format("{}: config_groups.{}", file, name);
    check(group.is_object(), ErrorCode::bad_input, "{} is {}; expected is an object", where, shown(group));
    const Json* weights = find(group, "weights");
    if (weights == nullptr) continue;
    check(weights->is_object(), ErrorCode::bad_input, "{}.weights is {}; expected is an object", where,
          shown(*weights));
    QuantizationConfig scheme;
    scheme.bits = integer_of(*weights, "num_bits", 0, where);
    scheme.symmetric = boolean_of(*weights, "symmetric", true, where);
    const std::string strategy = text_of(*weights, "strategy", where);
    scheme.group_size = integer_of(*weights, "group_size", -1, where);
    if (scheme.group_size == -1 && strategy == "channel") scheme.group_size = 0;
    const Json* order = find(*weights, "actorder");
    scheme.act_order = order != nullptr && !(order->is_boolean() && !order->get<bool>());
    check(first || (scheme.bits == config.bits && scheme.symmetric == config.symmetric &&
                    scheme.group_size == config.group_size),
          ErrorCode::bad_input, "{}: differs from the group before it; one scheme for all weights is supported", where);
    config.bits = scheme.bits;
    config.symmetric = scheme.symmetric;
    config.group_size = scheme.group_size;
    config.act_order = scheme.act_order;
    first = false;
  }
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

struct FreePattern {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct IgnoreRules::Compiled {
  std::unordered_set<std::string> names;
  std::vector<std::string> globs;
  std::vector<std::unique_ptr<pcre2_code, FreePattern>> expressions;
};

IgnoreRules::IgnoreRules(const std::vector<std::string>& entries, const std::string& file)
    : compiled_(std::make_unique<Compiled>()) {
  for (const std::string& entry : entries) {
    if (!entry.starts_with("re:")) {
      if (entry.find('*') == std::string::npos)
        compiled_->names.insert(entry);
      else
        compiled_->globs.push_back(entry);
      continue;
    }
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(entry.data() + 3), entry.size() - 3, PCRE2_ANCHORED,
                                     &error, &at, nullptr);
    check(code != nullptr, ErrorCode::bad_input, "{}: ignore entry '{}' is not a regular expression, at byte {}", file,
          shown_name(entry), at + 3);
    compiled_->expressions.emplace_back(code);
  }
}

IgnoreRules::~IgnoreRules() = default;

bool IgnoreRules::matches(std::string_view module) const {
  // Parts of the name between dots: any of them may be a plain entry; those from the start are the module's parents.
  std::vector<std::size_t> starts{0};
  for (std::size_t i = 0; i < module.size(); ++i)
    if (module[i] == '.') starts.push_back(i + 1);
  const auto part = [&](std::size_t first, std::size_t last) {
    const std::size_t end = last + 1 < starts.size() ? starts[last + 1] - 1 : module.size();
    return module.substr(starts[first], end - starts[first]);
  };
  for (std::size_t first = 0; first < starts.size() && !compiled_->names.empty(); ++first)
    for (std::size_t last = first; last < starts.size(); ++last)
      if (compiled_->names.contains(std::string(part(first, last)))) return true;
  for (std::size_t last = 0; last < starts.size(); ++last) {
    const std::string_view name = part(0, last);
    for (const std::string& glob : compiled_->globs)
      if (glob_matches(glob, name)) return true;
    for (const auto& expression : compiled_->expressions) {
      const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
      if (pcre2_match(expression.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, match.get(),
                      nullptr) >= 0)
        return true;
    }
  }
  return false;
}

bool QuantizationConfig::ignores(std::string_view module) const {
  return rules != nullptr ? rules->matches(module) : IgnoreRules(ignore, file).matches(module);
}

QuantizationConfig parse_quantization_config(const nlohmann::json& object, const std::string& file) {
  check(object.is_object(), ErrorCode::bad_input, "{} is {}; expected is an object", file, shown(object));
  QuantizationConfig config;
  config.file = file;
  config.method = text_of(object, "quant_method", file);
  if (config.method.empty() && object.contains("quant_algo")) config.method = "modelopt";
  check(!config.method.empty(), ErrorCode::bad_input, "{}: 'quant_method' is absent", file);
  config.format = text_of(object, config.method.starts_with("modelopt") ? "quant_algo" : "format", file);
  config.bits = config.method == "exl3" ? average_bits(object, file) : integer_of(object, "bits", 0, file);
  config.group_size = integer_of(object, "group_size", -1, file);
  if (config.method == "gptq" || config.method == "awq") config.group_size = whole_row_as_zero(config.group_size);
  config.symmetric = boolean_of(object, "sym", !boolean_of(object, "zero_point", false, file), file);
  config.act_order = boolean_of(object, "desc_act", false, file);
  config.checkpoint_format = text_of(object, config.method == "awq" ? "version" : "checkpoint_format", file);
  if (const Json* block = find(object, "weight_block_size")) {
    const bool ok = block->is_array() && block->size() == 2 && (*block)[0].is_number_unsigned() &&
                    (*block)[1].is_number_unsigned() && (*block)[0] > 0 && (*block)[1] > 0 && (*block)[0] < 65536 &&
                    (*block)[1] < 65536;
    check(ok, ErrorCode::bad_input, "{}: 'weight_block_size' is {}; expected are two positive integers", file,
          shown(*block));
    config.weight_block_size = {(*block)[0].get<std::int64_t>(), (*block)[1].get<std::int64_t>()};
  }
  append_names(object, "ignore", file, config.ignore);
  append_names(object, "exclude_modules", file, config.ignore);
  append_names(object, "modules_to_not_convert", file, config.ignore);
  config.rules = std::make_shared<IgnoreRules>(config.ignore, file);
  read_config_groups(object, file, config);
  return config;
}

QuantizationConfig parse_hf_quant_config(const nlohmann::json& root, const std::string& file) {
  check(root.is_object() && root.contains("quantization") && root["quantization"].is_object(), ErrorCode::bad_input,
        "{}: no object 'quantization'", file);
  const Json& object = root["quantization"];
  QuantizationConfig config;
  config.file = file;
  config.method = "modelopt";
  config.format = text_of(object, "quant_algo", file);
  config.group_size = integer_of(object, "group_size", -1, file);
  append_names(object, "exclude_modules", file, config.ignore);
  config.rules = std::make_shared<IgnoreRules>(config.ignore, file);
  return config;
}

}  // namespace fourfold
