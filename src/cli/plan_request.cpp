// From the arguments of `plan` to what is planned.
#include "plan_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "byte_size.h"
#include "device_choice.h"
#include "fourfold/error.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 1024;

Error usage(std::string text) { return Error(ErrorCode::usage, std::move(text)); }

/// The problem that a model's layer is, in words; what is not in the model comes from the arguments.
std::string problem_of(const ModelShape& model, const PlanArguments& arguments, std::vector<std::string>& notes) {
  std::string format = arguments.format.empty() ? model.format : arguments.format;
  if (format.empty()) {
    format = "nvfp4";
    notes.push_back("format: the model's experts are not in 4 bits; priced as nvfp4 (--format says otherwise)");
  }
  if (arguments.max_tokens == 0)
    notes.push_back(fmt::format("max_tokens: {}; --max-tokens says otherwise", kDefaultMaxTokens));
  return fmt::format("t{} k{} e{} h{} i{} {} {} {}{}",
                     arguments.max_tokens > 0 ? arguments.max_tokens : kDefaultMaxTokens, model.top_k, model.experts,
                     model.hidden, model.expert_intermediate, format, arguments.dtype, model.activation,
                     model.biases ? " bias" : "");
}

std::int64_t kv_value_bits(const std::string& dtype) {
  if (dtype == "fp8") return 8;
  return 16;  // bf16, f16
}

KvPrice kv_price(const PlanArguments& arguments, const PlanRequest& request) {
  KvPrice price;
  price.ranks = arguments.dcp;
  const int given = !arguments.kv_bytes_per_token.empty() + !arguments.kv_record_bytes.empty();
  if (given > 1) throw usage("--kv-bytes-per-token and --kv-record-bytes both price a token; leave one out");
  if (!arguments.kv_bytes_per_token.empty()) {
    price.bytes = byte_size("--kv-bytes-per-token", arguments.kv_bytes_per_token);
    if (arguments.dcp > 1)
      throw usage("--kv-bytes-per-token is what one rank holds; --dcp goes with --kv-record-bytes or --model");
    if (price.bytes == 0) throw usage("--kv-bytes-per-token 0: a token has at least one byte; leave it out");
    return price;
  }
  const std::int64_t layers = arguments.kv_layers > 0 ? arguments.kv_layers : request.model ? request.model->layers : 0;
  if (!arguments.kv_record_bytes.empty()) {
    const std::int64_t record = byte_size("--kv-record-bytes", arguments.kv_record_bytes);
    if (layers == 0) throw usage("--kv-record-bytes is of one layer; say how many with --kv-layers, or give --model");
    if (record == 0 || record > INT64_MAX / layers)
      throw usage(
          fmt::format("--kv-record-bytes {}: a token's record has at least 1 byte and all layers' stay below "
                      "2^63",
                      arguments.kv_record_bytes));
    price.bytes = record * layers;
    return price;
  }
  if (!request.model || layers == 0) return price;
  const std::int64_t values = request.model->kv_values(request.tp);
  if (values > INT64_MAX / layers / 2) throw usage("the model's KV cache has no size below 2^63");
  price.bytes = values * layers * kv_value_bits(arguments.kv_dtype) / 8;
  return price;
}

/// Bytes of a layer's experts as they lie in memory: packed for the device, or as the format has them where there is no
/// plan for it.
std::uint64_t resident_expert_bytes(const Caps& caps, const Device& device) {
  return can_implement(caps, device) ? plan(caps, device).weight_bytes() : layer_expert_bytes(caps);
}

/// What a rank has left for arena and cache.
void find_pool(const PlanArguments& arguments, PlanRequest& request) {
  if (!arguments.other_weights.empty() && !request.model)
    throw usage("--other-weights goes with --model, which says how many layers have experts; without one use --pool");
  if (!arguments.pool.empty()) {
    if (!arguments.reserve.empty() || !arguments.other_weights.empty())
      throw usage("--pool is what is left already; leave --reserve and --other-weights out");
    request.pool = byte_size("--pool", arguments.pool);
    request.pool_text = "as --pool says";
    return;
  }
  const bool asked = !arguments.reserve.empty() || !arguments.other_weights.empty();
  if (request.device.memory_bytes <= 0) {
    if (asked) throw usage("--reserve and --other-weights are taken from a device's memory; say it with --memory");
    request.pool_text = "--pool BYTES: what a rank has for arena and KV cache (or --memory, with a model's folder)";
    return;
  }
  if (!request.model || (request.model->file_bytes == 0 && arguments.other_weights.empty())) {
    if (asked)
      throw usage(
          "--reserve is taken from what the weights leave, and not all are known; say the others with --model and "
          "--other-weights, or what is left with --pool");
    request.pool_text =
        "--pool BYTES: what a rank has for arena and KV cache (the weights besides the experts are not known here; "
        "with "
        "--model, --other-weights says them)";
    return;
  }
  const ModelShape& model = *request.model;
  std::uint64_t experts = 0;
  const Caps* before = nullptr;
  for (const RankShare& rank : request.ranks) {
    if (before == nullptr || *before != rank.caps)
      experts = std::max(experts, resident_expert_bytes(rank.caps, request.device));
    before = &rank.caps;
  }
  const auto ranks = static_cast<std::int64_t>(request.ranks.size());
  if (experts > static_cast<std::uint64_t>(INT64_MAX / request.layers)) return;  // the report refuses it
  const auto expert_bytes = static_cast<std::int64_t>(experts) * request.layers;
  const std::int64_t dense_bytes = arguments.other_weights.empty()
                                       ? static_cast<std::int64_t>(model.file_bytes - model.file_expert_bytes) / ranks
                                       : byte_size("--other-weights", arguments.other_weights);
  const std::int64_t reserve = arguments.reserve.empty() ? 0 : byte_size("--reserve", arguments.reserve);
  std::int64_t left = request.device.memory_bytes;
  for (const std::int64_t taken : {expert_bytes, dense_bytes, reserve}) left = left > taken ? left - taken : 0;
  request.pool = left;
  request.pool_text = fmt::format("memory {} - experts {} - other weights {} - reserve {}",
                                  format_bytes(static_cast<std::uint64_t>(request.device.memory_bytes)),
                                  format_bytes(static_cast<std::uint64_t>(expert_bytes)),
                                  format_bytes(static_cast<std::uint64_t>(dense_bytes)),
                                  format_bytes(static_cast<std::uint64_t>(reserve)));
}

void check_capture(const PlanRequest& request) {
  for (const std::int64_t tokens : request.capture)
    if (tokens > request.problem.caps.max_tokens)
      throw Error(
          ErrorCode::unsupported,
          fmt::format("--capture {}: beyond the capacity, max_tokens = {}: such a batch runs in slices and never "
                      "as captured; the largest valid size is {}, or plan for {} tokens",
                      tokens, request.problem.caps.max_tokens, request.problem.caps.max_tokens, tokens));
}

}  // namespace

void add_plan_request_options(CLI::App& verb, PlanArguments& arguments) {
  constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;
  verb.add_option("problem", arguments.problem, "as 't64 k8 e128 h2048 i768 nvfp4 bf16 silu'; grammar in docs/cli.md");
  verb.add_option("--model", arguments.model, "plan a model's expert layer: a folder or a config.json; reads headers");
  verb.add_option("--format", arguments.format,
                  "with --model: 'nvfp4', 'int4 g128 zp', 'exl3 b3'; default: the model's");
  verb.add_option("--dtype", arguments.dtype, "with --model: activations")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  verb.add_option("--max-tokens", arguments.max_tokens, "the capacity: replaces the problem's token counts")
      ->check(CLI::Range(std::int64_t{1}, kMaxCount));
  verb.add_option("--capture", arguments.capture, "token counts that will be captured: 1,2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kMaxCount));
  verb.add_option("--tp", arguments.tp, "tensor-parallel ranks: each holds columns of every expert")
      ->check(CLI::Range(1, 65536));
  verb.add_option("--ep", arguments.ep, "expert-parallel ranks: each holds some experts")->check(CLI::Range(1, 65536));
  verb.add_option("--device", arguments.device,
                  "cpu (this machine), cuda:0, or a preset: h200, rtx-pro-6000, b200, ...");
  verb.add_option("--arch", arguments.arch, "the device's architecture, as sm_90a");
  verb.add_option("--sms", arguments.sms, "the device's multiprocessors")->check(CLI::Range(1, 65536));
  verb.add_option("--smem", arguments.smem, "the device's shared memory of a block, as 227K");
  verb.add_option("--memory", arguments.memory, "the device's memory, as 96G");
  verb.add_option("--threads", arguments.threads, "a CPU's threads")->check(CLI::Range(1, 65536));
  verb.add_option("--isa", arguments.isa, "a CPU's instruction set")
      ->check(CLI::IsMember({"portable", "avx2", "avx512", "avx512_bf16"}));
  verb.add_option("--kv-bytes-per-token", arguments.kv_bytes_per_token, "of the KV cache, on one rank, all layers");
  verb.add_option("--kv-record-bytes", arguments.kv_record_bytes, "of the KV cache, one token and layer");
  verb.add_option("--kv-layers", arguments.kv_layers, "layers with a KV cache; default: the model's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}));
  verb.add_option("--kv-dtype", arguments.kv_dtype, "with --model: how the cache is kept; default bf16")
      ->check(CLI::IsMember({"bf16", "f16", "fp8"}));
  verb.add_option("--dcp", arguments.dcp, "ranks that share a token's cache (decode-context parallel)")
      ->check(CLI::Range(1, 65536));
  verb.add_option("--pool", arguments.pool, "memory of a rank for arena and KV cache together, as 6GiB");
  verb.add_option("--other-weights", arguments.other_weights,
                  "with --model: a rank's weights besides the experts; default: what the folder's headers say");
  verb.add_option("--reserve", arguments.reserve, "memory of a rank to leave alone, as 2GiB");
}

Device device_of(const PlanArguments& arguments, const std::string& problem_arch) {
  // --arch alone names a device; beside --device or @arch it replaces a field.
  const bool alone = arguments.device.empty() && problem_arch.empty();
  Device device = device_to_plan_for(alone ? arguments.arch : arguments.device, problem_arch);
  const bool gpu = device.kind == DeviceKind::cuda;
  const auto only_for = [&](bool given, const char* option, bool wanted) {
    if (given && !wanted)
      throw usage(fmt::format("{} is for {}, and the device is {}; name one with --device", option,
                              gpu ? "a CPU" : "a GPU", device_text(device)));
  };
  only_for(!arguments.arch.empty(), "--arch", gpu);
  only_for(arguments.sms > 0, "--sms", gpu);
  only_for(!arguments.smem.empty(), "--smem", gpu);
  only_for(arguments.threads > 0, "--threads", !gpu);
  only_for(!arguments.isa.empty(), "--isa", !gpu);
  if (!arguments.arch.empty() && !alone) device.arch = full_arch(arguments.arch);
  if (arguments.sms > 0) device.multiprocessors = arguments.sms;
  if (!arguments.smem.empty()) device.shared_memory_bytes = byte_size("--smem", arguments.smem);
  if (!arguments.memory.empty()) device.memory_bytes = byte_size("--memory", arguments.memory);
  if (arguments.threads > 0) device.threads = arguments.threads;
  for (const CpuIsa isa : {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16})
    if (arguments.isa == cpu_isa_name(isa)) {
      device.isa = isa;
      device.isa_fallback_reason.clear();
    }
  return device;
}

PlanRequest plan_request(const PlanArguments& arguments) {
  if (arguments.problem.empty() && arguments.model.empty())
    throw usage("plan wants a problem, as 't64 k8 e128 h2048 i768 nvfp4 bf16 silu', or --model; one is missing");
  if (!arguments.problem.empty() && !arguments.model.empty())
    throw usage("a problem and --model both describe the layer; leave one out");
  if (!arguments.format.empty() && arguments.model.empty())
    throw usage("--format goes with --model; a problem says its format itself");
  if (!arguments.kv_dtype.empty() && arguments.model.empty())
    throw usage("--kv-dtype goes with --model; without one use --kv-bytes-per-token");
  PlanRequest request;
  std::string text = arguments.problem;
  if (!arguments.model.empty()) {
    request.model = read_model_shape(arguments.model);
    request.layers = request.model->moe_layers;
    text = problem_of(*request.model, arguments, request.notes);
  }
  request.problem = parse_problem(text);
  if (arguments.max_tokens > 0) {
    request.problem.caps.max_tokens = arguments.max_tokens;
    request.problem.tokens = {arguments.max_tokens};
  }
  request.device = device_of(arguments, request.problem.arch);
  request.tp = arguments.tp;
  request.split = arguments.tp > 1 || arguments.ep > 1;
  request.ranks = split_over_ranks(request.problem.caps, arguments.tp, arguments.ep);
  for (const std::int64_t tokens : arguments.capture)
    if (std::find(request.capture.begin(), request.capture.end(), tokens) == request.capture.end())
      request.capture.push_back(tokens);
  check_capture(request);
  request.kv = kv_price(arguments, request);
  if (!request.kv.known() && (arguments.dcp > 1 || arguments.kv_layers > 0))
    throw usage("--dcp and --kv-layers are parts of a token's price; say the rest with --kv-record-bytes or --model");
  find_pool(arguments, request);
  return request;
}

}  // namespace fourfold::cli
