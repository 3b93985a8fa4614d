// `verify moe` and `verify`: random problems, and the residue, poison and replay matrix of a device.
#include "fourfold/verify.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "core/check.h"
#include "moe/random_call.h"
#include "moe/reference_moe.h"
#include "moe/verify_call.h"

namespace fourfold {
namespace {

constexpr int kReplays = 3;

/// A random call, run and compared with the reference.
CaseResult check_random(const std::string& name, const Caps& caps, const RandomExperts& experts, const RandomCall& call,
                        Backend& backend, Inject inject) {
  const ReferenceResult reference = reference_moe(caps, experts.stacked(), call.tensors);
  return check_call(
      {name, caps, &experts.stacked(), call.tensors, reference.expected, reference.bound, reference.invalid_ids},
      backend, inject, kReplays);
}

constexpr std::int64_t kModuli[] = {8, 16, 32, 64, 128, 256};

/// One below, at and above every modulus, in steps of the smallest size there is.
std::vector<std::int64_t> residue_sizes() {
  std::vector<std::int64_t> sizes;
  for (std::int64_t modulus : kModuli)
    for (std::int64_t size : {modulus - 8, modulus, modulus + 8})
      if (size > 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  return sizes;
}

const FormatSpec kFormats[] = {FormatSpec::nvfp4(), FormatSpec::mxfp4(), FormatSpec::int4(32),
                               FormatSpec::int4(128, true), FormatSpec::int4(0)};
constexpr ActivationKind kKinds[] = {ActivationKind::silu, ActivationKind::swiglu_oai, ActivationKind::situ,
                                     ActivationKind::gelu_tanh, ActivationKind::relu2};
constexpr std::int64_t kTokens[] = {1, 3, 17, 65, 0, 2, 7, 8, 9, 33};

/// Sizes of sharded models and around a power of two, and token counts around the steps and bands of tile kernels.
constexpr std::int64_t kTileIntermediates[] = {32, 112, 128, 144, 224, 312, 352, 464, 480, 496, 512, 1856};
constexpr std::int64_t kTileTokens[] = {1, 8, 17, 24, 64, 65, 300};

/// Problems whose activations, dtypes, biases and routes take turns.
class ProblemList {
 public:
  explicit ProblemList(const Device& device) {
    if (device.kind == DeviceKind::cpu) dtypes_.push_back(DType::f32);
  }

  template <class List>
  auto next(const List& list, std::size_t period) const {
    return list[turn_ / period % std::size(list)];
  }
  DType next_dtype() const { return next(dtypes_, 2); }
  const std::vector<DType>& dtypes() const { return dtypes_; }

  void add(FormatSpec format, std::int64_t hidden, std::int64_t intermediate, std::int64_t tokens, DType dtype,
           ActivationKind kind) {
    Problem problem;
    Caps& caps = problem.caps;
    caps.format = format;
    caps.hidden = hidden;
    caps.intermediate = intermediate;
    caps.max_tokens = tokens;
    caps.top_k = static_cast<std::int64_t>(1 + turn_ % 3);
    caps.experts = 5;
    caps.activation_dtype = dtype;
    caps.activation.kind = kind;
    if (kind == ActivationKind::silu && turn_ % 2 == 1) caps.activation.limit = 0.75f;
    caps.gate_up_bias = turn_ % 4 == 1;
    caps.down_bias = turn_ % 4 >= 2;
    caps.router_weight_on_input = turn_ % 7 == 3;
    caps.global_experts = turn_ % 6 == 5 ? 9 : 0;
    problem.tokens = {tokens};
    problems_.push_back(problem);
    ++turn_;
  }
  std::vector<Problem> take() { return std::move(problems_); }

 private:
  std::vector<DType> dtypes_ = {DType::bf16, DType::f16};
  std::vector<Problem> problems_;
  std::size_t turn_ = 0;
};

}  // namespace

// Every residue of both sizes with every format, and for tensor cores the sizes that their tiles care about.
std::vector<Problem> verify_problems(const Device& device) {
  ProblemList list(device);
  for (FormatSpec format : kFormats) {
    for (std::int64_t size : residue_sizes()) {
      list.add(format, size, 40, list.next(kTokens, 1), list.next_dtype(), list.next(kKinds, 1));
      list.add(format, 72, size, list.next(kTokens, 1), list.next_dtype(), list.next(kKinds, 1));
    }
    for (ActivationKind kind : kKinds)
      for (DType dtype : list.dtypes())
        for (std::int64_t tokens : {1, 3, 17, 65}) list.add(format, 64, 48, tokens, dtype, kind);
  }
  for (std::int64_t tokens : kTokens) list.add(FormatSpec::nvfp4(), 256, 96, tokens, DType::bf16, ActivationKind::silu);
  if (device.kind == DeviceKind::cuda && !device.naive_kernels)
    for (std::int64_t intermediate : kTileIntermediates)
      for (std::int64_t tokens : kTileTokens)
        list.add(list.next(kFormats, 1), 136, intermediate, tokens, list.next_dtype(), list.next(kKinds, 3));
  return list.take();
}

CaseResult verify_problem(const Problem& problem, Backend& backend, std::uint64_t seed, Inject inject) {
  CaseResult worst;
  worst.name = problem_text(problem);
  const Support support = can_implement(problem.caps, backend.device());
  if (!support) {
    worst.refused = true;
    worst.reason = support.reason;
    return worst;
  }
  check(!problem.tokens.empty(), ErrorCode::usage, "verify: the problem names no token count; write t1 or t1,16");
  const RandomExperts experts(problem.caps, seed);
  worst.ok = true;
  for (std::int64_t tokens : problem.tokens) {
    const RandomCall call = random_call(problem.caps, tokens, seed + 1 + tokens);
    const CaseResult result = check_random(worst.name, problem.caps, experts, call, backend, inject);
    worst.max_error_over_bound = std::max(worst.max_error_over_bound, result.max_error_over_bound);
    if (result.ok) continue;
    if (worst.ok) worst.reason = fmt::format("{} tokens: {}", tokens, result.reason);
    worst.ok = false;
    worst.refused = worst.refused || result.refused;
  }
  return worst;
}

std::vector<CaseResult> verify_device(Backend& backend, Inject inject,
                                      const std::function<void(int, int, const std::string&)>& progress) {
  const std::vector<Problem> problems = verify_problems(backend.device());
  std::vector<CaseResult> results;
  for (const Problem& problem : problems) {
    const std::string name = problem_text(problem);
    const auto index = static_cast<std::uint64_t>(results.size());
    if (progress) progress(static_cast<int>(index), static_cast<int>(problems.size()), name);
    // A fault needs an element to sit in: with one planted, calls without tokens get one.
    const std::int64_t tokens =
        inject == Inject::none ? problem.tokens[0] : std::max<std::int64_t>(1, problem.tokens[0]);
    Caps caps = problem.caps;
    caps.max_tokens = std::max(caps.max_tokens, tokens);
    const RandomCallOptions options{.ids_are_64_bit = index % 2 == 1, .plant_dead_ids = true};
    const RandomCall call = random_call(caps, tokens, 1000 + index, options);
    results.push_back(check_random(name, caps, RandomExperts(caps, index), call, backend, inject));
  }
  if (progress) progress(static_cast<int>(results.size()), static_cast<int>(problems.size()), "");
  return results;
}

}  // namespace fourfold
