// Reads and writes problems as text. Words are separated by spaces and may stand in any order, '@arch' last:
//   t64 or t1,16,64 | k8 | e128 | h2048 | i768 | eg256 | nvfp4 mxfp4 int4 exl3 | g32 grow | zp | b3 | bf16 f16 f32
//   silu swiglu_oai situ gelu_tanh relu2 | limit=7 alpha=1.702 beta=1 | bias gate_up_bias down_bias
//   on_input | invariant | @arch
// t, k, e, h and i are required; the defaults are nvfp4 bf16 silu and groups of 32 for int4. Numbers are read here,
// whether they make sense is can_implement's business.
#include "plan/problem_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "core/check.h"
#include "plan/problem.h"

namespace fourfold {
namespace {

constexpr std::string_view kAccepted =
    "accepted: t64 or t1,16,64; k8 e128 h2048 i768 eg256; nvfp4 mxfp4 int4 exl3; g32 grow zp; b3; bf16 f16 f32; "
    "silu swiglu_oai situ gelu_tanh relu2; limit=7 alpha=1.702 beta=1; bias gate_up_bias down_bias; on_input; "
    "invariant; "
    "@arch as the last word";

constexpr std::int64_t kDefaultInt4Group = 32;

std::int64_t default_bits(WeightFormat format) {
  return format == WeightFormat::exl3 ? FormatSpec::exl3().bits : FormatSpec::nvfp4().bits;
}

std::int64_t default_group(WeightFormat format) {
  switch (format) {
    case WeightFormat::nvfp4:
      return FormatSpec::nvfp4().group_size;
    case WeightFormat::mxfp4:
      return FormatSpec::mxfp4().group_size;
    case WeightFormat::exl3:
      return FormatSpec::exl3().group_size;
    case WeightFormat::int4:
      break;
  }
  return kDefaultInt4Group;
}

// What a person can read of arbitrary bytes: printable ASCII, others as \xNN, cut after 40 characters.
std::string printable(std::string_view word) {
  constexpr std::size_t kMost = 40;
  std::string text;
  for (char c : word.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      text += c;
    else
      text += fmt::format("\\x{:02x}", byte);
  }
  return word.size() > kMost ? text + "..." : text;
}

/// A word of the text with its place, and what has been said so far.
struct Word {
  std::string_view text;
  std::size_t index = 0;   // from 1
  std::size_t column = 0;  // from 1, in bytes
};

[[noreturn]] void refuse(const Word& word, const std::string& why) {
  fail(ErrorCode::usage, "problem: word {} \"{}\" (column {}): {}; {}", word.index, printable(word.text), word.column,
       why, kAccepted);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::int64_t read_count(const Word& word, std::string_view digits) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const bool starts_well = !digits.empty() && is_digit(digits.front());  // from_chars would take a minus sign
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (starts_well && error == std::errc::result_out_of_range) refuse(word, "the number is not below 2^63");
  if (!starts_well || error != std::errc() || stop != end)
    refuse(word, fmt::format("\"{}\" is not a number made of digits", printable(digits)));
  return value;
}

float read_real(const Word& word, std::string_view digits) {
  float value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc::result_out_of_range) refuse(word, "the number is outside the range of fp32");
  if (error != std::errc() || stop != end || !std::isfinite(value))
    refuse(word, fmt::format("\"{}\" is not a finite decimal number", printable(digits)));
  return value;
}

class Parser {
 public:
  Problem parse(std::string_view text) {
    Word word;
    std::size_t begin = text.find_first_not_of(' ');
    while (begin != std::string_view::npos) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      word = {text.substr(begin, end - begin), word.index + 1, begin + 1};
      take(word);
      begin = text.find_first_not_of(' ', end);
    }
    for (std::string_view required : {"t", "k", "e", "h", "i"})
      check(said_.contains(required), ErrorCode::usage, "problem: \"{}\" is missing, e.g. {}; {}", required,
            example(required), kAccepted);
    Caps& caps = problem_.caps;
    caps.max_tokens = *std::max_element(problem_.tokens.begin(), problem_.tokens.end());
    if (!said_.contains("group size")) caps.format.group_size = default_group(caps.format.format);
    if (!said_.contains("bits")) caps.format.bits = default_bits(caps.format.format);
    return std::move(problem_);
  }

 private:
  static std::string_view example(std::string_view key) {
    if (key == "t") return "t64";
    if (key == "k") return "k8";
    if (key == "e") return "e128";
    return key == "h" ? "h2048" : "i768";
  }

  void say_once(const Word& word, std::string_view what) {
    if (!said_.insert(what).second) refuse(word, fmt::format("{} was given before", what));
  }

  void take(const Word& word) {
    if (said_.contains("@arch")) refuse(word, "nothing may follow '@arch'");
    if (word.text.front() == '@') return take_arch(word);
    if (take_name(word) || take_flag(word) || take_real(word) || take_number(word)) return;
    refuse(word, "unknown word");
  }

  void take_arch(const Word& word) {
    say_once(word, "@arch");
    const std::string_view arch = word.text.substr(1);
    const auto allowed = [](char c) {
      return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
    };
    if (arch.empty() || !std::all_of(arch.begin(), arch.end(), allowed))
      refuse(word, "an architecture is made of letters, digits, '_', '-' and '.'");
    problem_.arch = arch;
  }

  // Formats, dtypes and activations.
  bool take_name(const Word& word) {
    Caps& caps = problem_.caps;
    for (WeightFormat format : {WeightFormat::nvfp4, WeightFormat::mxfp4, WeightFormat::int4, WeightFormat::exl3})
      if (word.text == weight_format_name(format)) {
        say_once(word, "weight format");
        caps.format.format = format;
        return true;
      }
    for (const auto& [name, dtype] : kDTypes)
      if (word.text == name) {
        say_once(word, "activation dtype");
        caps.activation_dtype = dtype;
        return true;
      }
    for (ActivationKind kind : {ActivationKind::silu, ActivationKind::swiglu_oai, ActivationKind::situ,
                                ActivationKind::gelu_tanh, ActivationKind::relu2})
      if (word.text == activation_name(kind)) {
        say_once(word, "activation");
        caps.activation.kind = kind;
        return true;
      }
    return false;
  }

  bool take_flag(const Word& word) {
    Caps& caps = problem_.caps;
    if (word.text == "bias" || word.text == "gate_up_bias") {
      say_once(word, "gate_up_bias");
      caps.gate_up_bias = true;
    }
    if (word.text == "bias" || word.text == "down_bias") {
      say_once(word, "down_bias");
      caps.down_bias = true;
      return true;
    }
    if (word.text == "gate_up_bias") return true;
    if (word.text == "zp") return set_once(word, caps.format.zero_points);
    if (word.text == "on_input") return set_once(word, caps.router_weight_on_input);
    if (word.text == "invariant") return set_once(word, caps.batch_invariant);
    if (word.text != "grow") return false;
    say_once(word, "group size");
    caps.format.group_size = 0;
    return true;
  }

  // `word.text` lives as long as the parsed text, so it may be remembered.
  bool set_once(const Word& word, bool& flag) {
    say_once(word, word.text);
    return flag = true;
  }

  bool take_real(const Word& word) {
    const std::size_t equals = word.text.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = word.text.substr(0, equals);
    Activation& activation = problem_.caps.activation;
    std::optional<float>* option = key == "limit"   ? &activation.limit
                                   : key == "alpha" ? &activation.alpha
                                   : key == "beta"  ? &activation.beta
                                                    : nullptr;
    if (option == nullptr) return false;
    say_once(word, key);
    *option = read_real(word, word.text.substr(equals + 1));
    return true;
  }

  bool take_number(const Word& word) {
    const std::size_t letters = word.text.starts_with("eg") ? 2 : 1;
    const std::string_view key = word.text.substr(0, letters);
    const std::string_view digits = word.text.substr(letters);
    if (digits.empty() || (!is_digit(digits.front()) && digits.front() != '-' && digits.front() != '+')) return false;
    Caps& caps = problem_.caps;
    if (key == "t") return take_tokens(word, digits);
    std::int64_t* field = key == "k"    ? &caps.top_k
                          : key == "e"  ? &caps.experts
                          : key == "h"  ? &caps.hidden
                          : key == "i"  ? &caps.intermediate
                          : key == "eg" ? &caps.global_experts
                          : key == "g"  ? &caps.format.group_size
                          : key == "b"  ? &caps.format.bits
                                        : nullptr;
    if (field == nullptr) return false;
    say_once(word, key == "g" ? "group size" : key == "b" ? "bits" : key);
    *field = read_count(word, digits);
    if (*field == 0 && key == "g") refuse(word, "a group has at least one position; the whole row is written grow");
    if (*field == 0 && key == "eg") refuse(word, "there is at least one global expert; leave the word out for none");
    return true;
  }

  bool take_tokens(const Word& word, std::string_view list) {
    say_once(word, "t");
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      problem_.tokens.push_back(read_count(word, list.substr(begin, end - begin)));
      begin = end + 1;
    }
    return true;
  }

  static constexpr std::array<std::pair<std::string_view, DType>, 3> kDTypes{
      {{"bf16", DType::bf16}, {"f16", DType::f16}, {"f32", DType::f32}}};

  Problem problem_;
  std::set<std::string_view> said_;
};

std::string dtype_word(DType dtype) {
  std::string text = dtype_text(dtype);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

}  // namespace

Problem parse_problem(std::string_view text) { return Parser().parse(text); }

std::string problem_text(const Problem& problem) {
  const Caps& caps = problem.caps;
  std::string text = fmt::format("t{} k{} e{} h{} i{}", fmt::join(problem.tokens, ","), caps.top_k, caps.experts,
                                 caps.hidden, caps.intermediate);
  const auto add = [&text](bool wanted, std::string_view word) {
    if (wanted) text += fmt::format(" {}", word);
  };
  add(caps.global_experts != 0, fmt::format("eg{}", caps.global_experts));
  add(true, weight_format_name(caps.format.format));
  if (caps.format.group_size == 0)
    add(true, "grow");
  else
    add(caps.format.group_size != default_group(caps.format.format), fmt::format("g{}", caps.format.group_size));
  add(caps.format.zero_points, "zp");
  add(caps.format.bits != default_bits(caps.format.format), fmt::format("b{}", caps.format.bits));
  add(true, dtype_word(caps.activation_dtype));
  add(true, activation_name(caps.activation.kind));
  // {} prints the shortest decimal that reads back as the same float.
  if (caps.activation.limit) text += fmt::format(" limit={}", *caps.activation.limit);
  if (caps.activation.alpha) text += fmt::format(" alpha={}", *caps.activation.alpha);
  if (caps.activation.beta) text += fmt::format(" beta={}", *caps.activation.beta);
  add(caps.gate_up_bias && caps.down_bias, "bias");
  add(caps.gate_up_bias && !caps.down_bias, "gate_up_bias");
  add(!caps.gate_up_bias && caps.down_bias, "down_bias");
  add(caps.router_weight_on_input, "on_input");
  add(caps.batch_invariant, "invariant");
  add(!problem.arch.empty(), "@" + problem.arch);
  return text;
}

std::string caps_text(const Caps& caps) { return problem_text({caps, {caps.max_tokens}, {}}); }

}  // namespace fourfold
