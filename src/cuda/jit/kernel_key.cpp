// Writing and reading key texts.
#include "cuda/jit/kernel_key.h"

#include <charconv>

#include "core/check.h"
#include "core/hash.h"

namespace fourfold::cuda {
namespace {

void append_field(std::string& text, std::string_view name, std::string_view value) {
  text += name;
  text += ':';
  text += std::to_string(value.size());
  text += ':';
  text += value;
  text += '\n';
}

bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !is_letter(text[0])) return false;
  for (const char c : text)
    if (!is_letter(c) && !(c >= '0' && c <= '9')) return false;
  return true;
}

void check_defines(const KernelSpec& spec) {
  const std::string* previous = nullptr;
  for (const auto& [macro, value] : spec.defines) {
    check(is_identifier(macro), ErrorCode::unsupported, "kernel '{}': macro '{}' is no identifier", spec.source, macro);
    check(value.find('\n') == std::string::npos, ErrorCode::unsupported, "kernel '{}': the value of {} has two lines",
          spec.source, macro);
    check(previous == nullptr || *previous < macro, ErrorCode::unsupported,
          "kernel '{}': macro {} follows {}; macros ascend and come once", spec.source, macro,
          previous == nullptr ? "" : *previous);
    previous = &macro;
  }
}

// Takes one field off the front of `text`.
std::pair<std::string, std::string> take_field(std::string_view& text) {
  const auto broken = [] { fail(ErrorCode::bad_input, "not a kernel key: a field is cut or has no length"); };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) broken();
  const std::size_t second = text.find(':', colon + 1);
  if (second == std::string_view::npos) broken();
  std::size_t length = 0;
  const char* digits_end = text.data() + second;
  const auto [end, error] = std::from_chars(text.data() + colon + 1, digits_end, length);
  if (error != std::errc() || end != digits_end) broken();
  const std::size_t left = text.size() - second - 1;
  if (left == 0 || length > left - 1 || text[second + 1 + length] != '\n') broken();
  std::pair<std::string, std::string> field{text.substr(0, colon), text.substr(second + 1, length)};
  text.remove_prefix(second + 1 + length + 1);
  return field;
}

}  // namespace

std::string sources_text(std::span<const NamedSource> closure) {
  std::string text;
  for (const NamedSource& source : closure) {
    append_field(text, "file", source.name);
    append_field(text, "text", source.text);
  }
  return text;
}

KernelKey kernel_key(const SourceTree& tree, const KernelSpec& spec, const KernelTarget& target) {
  check_defines(spec);
  KernelKey key;
  key.sources = sources_text(tree.closure(spec.source));
  append_field(key.instance, "source", spec.source);
  append_field(key.instance, "entry", spec.entry());
  for (const auto& [macro, value] : spec.defines) {
    append_field(key.instance, "macro", macro);
    append_field(key.instance, "value", value);
  }
  for (const std::string& option : target.options) append_field(key.instance, "option", option);
  append_field(key.instance, "architecture", target.architecture);
  append_field(key.instance, "compiler", target.compiler_version);
  const std::string text = key.text();
  key.digest = hash_hex(text.data(), text.size());
  return key;
}

std::vector<std::pair<std::string, std::string>> key_fields(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> fields;
  while (!text.empty()) fields.push_back(take_field(text));
  return fields;
}

std::string describe_key(std::string_view text) {
  std::string description;
  for (const auto& [name, value] : key_fields(text)) {
    if (name == "text")
      description += fmt::format("  {} bytes, digest {}\n", value.size(), hash_hex(value.data(), value.size()));
    else
      description += fmt::format("{} {}\n", name, value);
  }
  return description;
}

}  // namespace fourfold::cuda
