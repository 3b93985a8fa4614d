// Suites, problems and the words of --ab.
#include "bench_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <sstream>
#include <string_view>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

struct SuiteShape {
  const char* name;
  const char* words;
};
// The shapes that published measurements of the peer have (docs/performance.md).
constexpr std::array<SuiteShape, 4> kShapes{{{"GLM-5.2 TP4", "k8 e160 h6144 i512"},
                                             {"Qwen3-30B-A3B", "k8 e128 h2048 i768"},
                                             {"Qwen3-235B", "k8 e128 h4096 i1536"},
                                             {"gpt-oss-120b-like", "k4 e128 h3072 i3072"}}};
constexpr const char* kUsualWords = "nvfp4 bf16 silu";
constexpr const char* kDecodeTokens = "t1,2,4,8,16,32,64,128,256";
constexpr const char* kPrefillTokens = "t512,1024,2048,4096,16384";

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Words of one kind exclude each other in a problem; empty for a word that only itself excludes.
std::string kind_of(const std::string& word) {
  static constexpr std::array<std::string_view, 3> kFormats{"nvfp4", "mxfp4", "int4"}, kDtypes{"bf16", "f16", "f32"};
  static constexpr std::array<std::string_view, 5> kActivations{"silu", "swiglu_oai", "situ", "gelu_tanh", "relu2"};
  const auto in = [&](const auto& list) { return std::find(list.begin(), list.end(), word) != list.end(); };
  if (in(kFormats)) return "format";
  if (in(kDtypes)) return "dtype";
  if (in(kActivations)) return "activation";
  if (word == "grow") return "g";
  if (const std::size_t equals = word.find('='); equals != std::string::npos) return word.substr(0, equals);
  const auto digit = std::find_if(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto letters = static_cast<std::size_t>(digit - word.begin());
  if (digit != word.end() && letters <= 2) return word.substr(0, letters);  // t, k, e, h, i, g, eg
  return word;
}

/// `base` with the words of `changes` in place of those of their kind, or behind them.
std::string replaced(const std::string& base, const std::vector<std::string>& changes) {
  std::vector<std::string> words = split(base);
  for (const std::string& change : changes) {
    const std::string kind = kind_of(change);
    const auto same =
        std::find_if(words.begin(), words.end(), [&](const std::string& word) { return kind_of(word) == kind; });
    if (same != words.end()) {
      *same = change;
      continue;
    }
    // "@arch" stays last.
    const bool has_arch = !words.empty() && words.back().starts_with('@');
    words.insert(has_arch ? words.end() - 1 : words.end(), change);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> suite_texts(const CaseOptions& options) {
  if (options.problems.size() > 1)
    throw Error(ErrorCode::usage, fmt::format("--suite {}: takes at most one text of words that replace its own, as "
                                              "'mxfp4' or 't1,8 int4 g128'; {} were given",
                                              options.suite, options.problems.size()));
  std::vector<std::string> texts;
  for (const SuiteShape& shape : kShapes) {
    const std::string text =
        fmt::format("{} {} {}", options.suite == "prefill" ? kPrefillTokens : kDecodeTokens, shape.words, kUsualWords);
    texts.push_back(options.problems.empty() ? text : replaced(text, split(options.problems.front())));
  }
  return texts;
}

NamedCase named(const std::string& shape, const Problem& problem, std::int64_t tokens, RoutingKind routing,
                std::int64_t capacity) {
  if (tokens < 1) throw Error(ErrorCode::usage, "t0: nothing runs for 0 tokens, so nothing can be timed; use t1");
  Problem one = problem;
  one.tokens = {tokens};
  one.caps.max_tokens = tokens;
  NamedCase result;
  result.shape = shape;
  result.arch = problem.arch;
  one.arch.clear();
  result.problem = problem_text(one);
  result.subject.caps = one.caps;
  result.subject.routing = routing;
  result.subject.capacity = capacity;
  return result;
}

std::int64_t capacity_from(const std::string& text) {
  std::int64_t capacity = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), capacity);
  if (error != std::errc() || end != text.data() + text.size() || capacity < 1)
    throw Error(ErrorCode::usage, fmt::format("capacity={}: write a whole number of tokens, at least 1", text));
  return capacity;
}

}  // namespace

const std::vector<std::string>& suite_names() {
  static const std::vector<std::string> names{"decode", "prefill"};
  return names;
}

std::vector<NamedCase> cases_of(const CaseOptions& options) {
  const std::vector<std::string> texts = options.suite.empty() ? options.problems : suite_texts(options);
  if (texts.empty())
    throw Error(ErrorCode::usage,
                "bench moe: nothing to measure; write a problem as 't1,8 k8 e128 h2048 i768', or "
                "--suite decode with --device cuda:0");
  const std::vector<std::int64_t> whole{0};
  std::vector<NamedCase> cases;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Problem problem = parse_problem(texts[i]);
    for (const std::int64_t tokens : problem.tokens)
      for (const std::int64_t capacity : options.capacities.empty() ? whole : options.capacities)
        cases.push_back(
            named(options.suite.empty() ? "" : kShapes[i].name, problem, tokens, options.routing, capacity));
  }
  return cases;
}

NamedCase with_words(const NamedCase& base, const std::string& words) {
  BenchmarkCase subject = base.subject;
  std::vector<std::string> changes;
  for (const std::string& word : split(words)) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "gate_up")
      subject.gate_up_shape = value;
    else if (name == "down")
      subject.down_shape = value;
    else if (name == "routing")
      subject.routing = routing_from_name(value);
    else if (name == "capacity")
      subject.capacity = capacity_from(value);
    else
      changes.push_back(word);
  }
  const Problem problem = parse_problem(replaced(base.problem, changes));
  if (problem.tokens.size() != 1)
    throw Error(ErrorCode::usage,
                fmt::format("--ab \"{}\": one token count a side; give several in the problem", words));
  NamedCase result = named(base.shape, problem, problem.tokens.front(), subject.routing, subject.capacity);
  result.arch = base.arch;
  result.subject.gate_up_shape = subject.gate_up_shape;
  result.subject.down_shape = subject.down_shape;
  return result;
}

}  // namespace fourfold::cli
