// Reading tokenizer.json: every key that changes ids is honoured or refused by name, none is skipped.
#include "model/tokenizer_file.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

/// The pattern of ByteLevel with use_regex (Radford et al. 2019, the GPT-2 encoder).
constexpr const char* kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/// A value with its place in the file, for messages: "tokenizer.json: model.vocab".
struct Node {
  const Json* json;
  std::string where;

  bool null() const { return json == nullptr || json->is_null(); }
  /// The member, or a null node. Throws when this is no object.
  Node optional(const char* key) const {
    check(json != nullptr && json->is_object(), ErrorCode::bad_input, "{} is {}, not an object", where, kind());
    const auto found = json->find(key);
    return {found == json->end() ? nullptr : &*found, where + (where.ends_with(": ") ? "" : ".") + key};
  }
  Node at(const char* key) const {
    Node node = optional(key);
    check(node.json != nullptr, ErrorCode::bad_input, "{} is missing", node.where);
    return node;
  }
  Node element(std::size_t index) const { return {&(*json)[index], fmt::format("{}[{}]", where, index)}; }
  std::size_t array_size() const {
    check(json != nullptr && json->is_array(), ErrorCode::bad_input, "{} is {}, not an array", where, kind());
    return json->size();
  }
  const std::string& string() const {
    check(json != nullptr && json->is_string(), ErrorCode::bad_input, "{} is {}, not a string", where, kind());
    return json->get_ref<const std::string&>();
  }
  bool boolean() const {
    check(json != nullptr && json->is_boolean(), ErrorCode::bad_input, "{} is {}, not true or false", where, kind());
    return json->get<bool>();
  }
  bool boolean_or(bool otherwise) const { return null() ? otherwise : boolean(); }
  std::int32_t id() const {
    check(json != nullptr && json->is_number_integer(), ErrorCode::bad_input, "{} is {}, not an id", where, kind());
    const bool fits = json->is_number_unsigned()
                          ? json->get<std::uint64_t>() < static_cast<std::uint64_t>(kTokenIdLimit)
                          : json->get<std::int64_t>() >= 0 && json->get<std::int64_t>() < kTokenIdLimit;
    check(fits, ErrorCode::bad_input, "{}: id {} is outside [0, {})", where, json->dump(), kTokenIdLimit);
    return json->get<std::int32_t>();
  }
  const char* kind() const { return json == nullptr ? "missing" : json->type_name(); }
};

[[noreturn]] void refuse(const Node& node, std::string_view value, std::string_view accepted) {
  fail(ErrorCode::unsupported, "{}: \"{}\" is not supported; supported: {}", node.where, value, accepted);
}

void parse_vocab(const Node& model, TokenizerFile& file) {
  const Node vocab = model.at("vocab");
  check(vocab.json->is_object() && !vocab.json->empty(), ErrorCode::bad_input, "{} is {}, not an object with tokens",
        vocab.where, vocab.kind());
  std::unordered_map<std::int32_t, const std::string*> owner;
  file.vocab.reserve(vocab.json->size());
  for (const auto& [token, id_json] : vocab.json->items()) {
    const Node entry{&id_json, fmt::format("{}[\"{}\"]", vocab.where, token)};
    check(!token.empty(), ErrorCode::bad_input, "{}: an empty token", vocab.where);
    const auto [stored, fresh] = file.vocab.emplace(token, entry.id());
    const auto [other, unique] = owner.emplace(stored->second, &stored->first);
    check(unique, ErrorCode::bad_input, "{}: id {} is also the id of \"{}\"", entry.where, stored->second,
          *other->second);
  }
}

void parse_merges(const Node& model, TokenizerFile& file) {
  const Node merges = model.at("merges");
  const std::size_t count = merges.array_size();
  check(count < static_cast<std::size_t>(kTokenIdLimit), ErrorCode::bad_input, "{}: {} merges, more than {}",
        merges.where, count, kTokenIdLimit);
  file.merges.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Node merge = merges.element(i);
    if (merge.json->is_array()) {
      check(merge.json->size() == 2, ErrorCode::bad_input, "{} has {} parts, not 2", merge.where, merge.json->size());
      file.merges.emplace_back(merge.element(0).string(), merge.element(1).string());
    } else {
      const std::string& text = merge.string();
      const std::size_t blank = text.find(' ');
      check(blank != std::string::npos && blank > 0 && blank + 1 < text.size() &&
                text.find(' ', blank + 1) == std::string::npos,
            ErrorCode::bad_input, "{}: \"{}\" is not two tokens with one blank between", merge.where, text);
      file.merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
    }
    const auto& [left, right] = file.merges.back();
    for (const std::string& part : {left, right, left + right})
      check(file.vocab.contains(part), ErrorCode::bad_input, "{}: \"{}\" is not in model.vocab", merge.where, part);
  }
}

void parse_model(const Node& root, TokenizerFile& file) {
  const Node model = root.at("model");
  if (const Node type = model.optional("type"); !type.null() && type.string() != "BPE")
    refuse(type, type.string(), "BPE");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Node node = model.optional(key); !node.null() && !node.string().empty())
      refuse(node, node.string(), "none");
  if (const Node dropout = model.optional("dropout"); !dropout.null() && *dropout.json != 0.0)
    refuse(dropout, dropout.json->dump(), "none");
  if (const Node fallback = model.optional("byte_fallback"); fallback.boolean_or(false))
    refuse(fallback, "true", "false (every byte is a token of the byte-level alphabet)");
  file.ignore_merges = model.optional("ignore_merges").boolean_or(false);
  parse_vocab(model, file);
  parse_merges(model, file);
}

void parse_added_tokens(const Node& root, TokenizerFile& file) {
  const Node added = root.optional("added_tokens");
  if (added.null()) return;
  std::unordered_map<std::int32_t, std::string> by_id;
  for (const auto& [token, id] : file.vocab) by_id.emplace(id, token);
  for (std::size_t i = 0; i < added.array_size(); ++i) {
    const Node node = added.element(i);
    AddedToken token{node.at("id").id(), node.at("content").string(), node.optional("normalized").boolean_or(false)};
    check(!token.content.empty(), ErrorCode::bad_input, "{} is empty", node.at("content").where);
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (node.optional(key).boolean_or(false)) refuse(node.at(key), "true", "false");
    const auto [known, fresh] = by_id.emplace(token.id, token.content);
    check(known->second == token.content, ErrorCode::bad_input, "{}: id {} is also the id of \"{}\"", node.where,
          token.id, known->second);
    file.added.push_back(std::move(token));
  }
}

void parse_normalizer(const Node& node, TokenizerFile& file) {
  if (node.null()) return;
  const std::string& type = node.at("type").string();
  if (type == "NFC") {
    file.nfc = true;
  } else if (type == "Sequence") {
    const Node list = node.at("normalizers");
    for (std::size_t i = 0; i < list.array_size(); ++i) {
      const Node element = list.element(i);
      check(!element.null() && element.at("type").json->is_string() && element.at("type").string() != "Sequence",
            ErrorCode::bad_input, "{} is no normalizer", element.where);
      parse_normalizer(element, file);
    }
  } else {
    refuse(node.at("type"), type, "NFC, a Sequence of it, or null");
  }
}

SplitStep parse_split(const Node& node) {
  const Node behavior = node.at("behavior");
  if (behavior.string() != "Isolated") refuse(behavior, behavior.string(), "Isolated");
  node.optional("invert").boolean_or(false);  // isolates the same pieces either way
  const Node pattern = node.at("pattern");
  const Node regex = pattern.optional("Regex"), text = pattern.optional("String");
  check(regex.null() != text.null(), ErrorCode::bad_input, "{} has neither Regex nor String, or both", pattern.where);
  SplitStep step;
  step.literal = regex.null();
  step.pattern = step.literal ? text.string() : regex.string();
  check(!step.pattern.empty(), ErrorCode::bad_input, "{} is empty", pattern.where);
  return step;
}

/// Appends the steps; returns whether one of them was ByteLevel.
bool parse_pre_tokenizer(const Node& node, TokenizerFile& file, bool nested) {
  const std::string& type = node.at("type").string();
  if (type == "Split") {
    file.steps.push_back(parse_split(node));
    return false;
  }
  if (type == "ByteLevel") {
    SplitStep step;
    step.add_prefix_space = node.optional("add_prefix_space").boolean_or(true);
    if (node.optional("use_regex").boolean_or(true)) step.pattern = kGpt2Pattern;
    file.steps.push_back(step);
    return true;
  }
  if (type != "Sequence" || nested) refuse(node.at("type"), type, "Split, ByteLevel, or one Sequence of them");
  const Node list = node.at("pretokenizers");
  const std::size_t count = list.array_size();
  bool byte_level = false;
  for (std::size_t i = 0; i < count; ++i) {
    // A pattern after ByteLevel would see the byte alphabet instead of the text.
    check(!byte_level, ErrorCode::unsupported, "{} comes after ByteLevel; ByteLevel must be the last",
          list.element(i).where);
    byte_level = parse_pre_tokenizer(list.element(i), file, true);
  }
  return byte_level;
}

void parse_decoder(const Node& node) {
  check(!node.null(), ErrorCode::unsupported, "{} is null; supported: ByteLevel", node.where);
  if (const Node type = node.at("type"); type.string() != "ByteLevel") refuse(type, type.string(), "ByteLevel");
}

void parse_template(const Node& node, TokenizerFile& file) {
  const Node single = node.at("single");
  bool after_text = false;
  for (std::size_t i = 0; i < single.array_size(); ++i) {
    const Node piece = single.element(i);
    if (!piece.optional("Sequence").null()) {
      check(!after_text, ErrorCode::bad_input, "{}: the text appears twice", single.where);
      after_text = true;
      continue;
    }
    const std::string& name = piece.at("SpecialToken").at("id").string();
    const Node ids = node.at("special_tokens").at(name.c_str()).at("ids");
    for (std::size_t j = 0; j < ids.array_size(); ++j)
      (after_text ? file.suffix_ids : file.prefix_ids).push_back(ids.element(j).id());
  }
  check(after_text, ErrorCode::bad_input, "{}: the text does not appear", single.where);
}

void parse_post_processor(const Node& node, TokenizerFile& file, bool nested) {
  if (node.null()) return;
  const std::string& type = node.at("type").string();
  if (type == "ByteLevel") return;  // adjusts character offsets only
  if (type == "TemplateProcessing") {
    check(file.prefix_ids.empty() && file.suffix_ids.empty(), ErrorCode::unsupported, "{}: a second template",
          node.where);
    return parse_template(node, file);
  }
  if (type != "Sequence" || nested)
    refuse(node.at("type"), type, "ByteLevel, TemplateProcessing, one Sequence of them, or null");
  const Node list = node.at("processors");
  for (std::size_t i = 0; i < list.array_size(); ++i) parse_post_processor(list.element(i), file, true);
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view json_text, const std::string& name) {
  Json json;
  try {
    json = Json::parse(json_text);
  } catch (const Json::exception& error) {
    fail(ErrorCode::bad_input, "{}: not JSON: {}", name, error.what());
  }
  TokenizerFile file;
  const Node root{&json, name + ": "};
  check(json.is_object(), ErrorCode::bad_input, "{}: the file is {}, not an object", name, json.type_name());
  parse_model(root, file);
  parse_added_tokens(root, file);
  parse_normalizer(root.optional("normalizer"), file);
  const Node pre_tokenizer = root.optional("pre_tokenizer");
  check(!pre_tokenizer.null() && parse_pre_tokenizer(pre_tokenizer, file, false), ErrorCode::unsupported,
        "{} has no ByteLevel; only byte-level tokenizers are supported", pre_tokenizer.where);
  parse_decoder(root.optional("decoder"));
  parse_post_processor(root.optional("post_processor"), file, false);
  return file;
}

}  // namespace fourfold
