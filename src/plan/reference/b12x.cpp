// The scratch arena of b12x 1.1.0 and the problems its planner refuses. Source: see the header.
#include "plan/reference/b12x.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "plan/reference/route_blocks.h"

namespace fourfold::reference {
namespace {

using Layout = B12xProblem::Layout;

constexpr std::int64_t kAlignment = 16;
// Calls of up to this many tokens may skip the packing of routes, each route a block of its own: 8 when the tensor-core
// decode path serves (bf16, gated), else 6.
constexpr std::int64_t kDirectTokens = 6, kTensorDecodeTokens = 8;
// Largest call of the native small-batch kernel, and the positions that one of its scratch rows is cut into.
constexpr std::int64_t kMicroTokens = 8, kMicroChunk = 128;

std::string trellis_refusal(const Caps& caps) {
  if (caps.global_experts > 0) return "ep_moe plans no Trellis weights; leave global experts out";
  if (caps.hidden % 128 != 0 || caps.intermediate % 128 != 0)
    return fmt::format("hidden_size {} and intermediate_size {}: Trellis full rotation needs multiples of 128",
                       caps.hidden, caps.intermediate);
  const ActivationKind kind = caps.activation.kind;
  if (kind != ActivationKind::silu && kind != ActivationKind::situ)
    return fmt::format("activation {}: Trellis takes silu or situ", activation_name(kind));
  if (caps.activation.limit) return "swiglu_limit: Trellis takes none";
  if (caps.router_weight_on_input) return "apply_router_weight_on_input: Trellis refuses it";
  return {};
}

// The fused kernel wants tiles that divide both GEMMs exactly and use the same number of threads in both.
bool has_tile(std::int64_t block, const Caps& caps) {
  struct Tile {
    std::int64_t k, n;
    int threads;
  };
  static constexpr std::array<Tile, 3> kSmall{{{128, 128, 256}, {64, 128, 128}, {128, 64, 128}}};
  static constexpr std::array<Tile, 3> kLarge{{{64, 256, 256}, {64, 128, 128}, {128, 64, 128}}};
  const auto& tiles = block <= 16 ? kSmall : kLarge;
  for (const Tile& first : tiles)
    for (const Tile& second : tiles)
      if (first.threads == second.threads && caps.gate_up_rows() % first.n == 0 && caps.hidden % first.k == 0 &&
          caps.hidden % second.n == 0 && caps.intermediate % second.k == 0)
        return true;
  return false;
}

std::string layout_refusal(const Caps& caps, const B12xProblem& problem) {
  if (problem.layout == Layout::packed) {
    if (caps.gate_up_rows() % 64 != 0 || caps.hidden % 64 != 0 || caps.intermediate % 16 != 0)
      return fmt::format("layout mma_packed: N % 64 and K % 16 must be 0; N is {} and {}, K is {} and {}",
                         caps.gate_up_rows(), caps.hidden, caps.hidden, caps.intermediate);
    for (const std::int64_t block : b12x_blocks(problem))
      if (!has_tile(block, caps))
        return fmt::format("layout mma_packed: no tile of route block {} divides N = {} and {}, K = {} and {}", block,
                           caps.gate_up_rows(), caps.hidden, caps.hidden, caps.intermediate);
    return {};
  }
  // Native rows are multiples of the scale group; MXFP4 alone has predicated tails.
  const std::int64_t n_rule = 16, k_rule = caps.format.format == WeightFormat::mxfp4 ? 8 : 16;
  if (caps.gate_up_rows() % n_rule != 0 || caps.hidden % n_rule != 0 || caps.hidden % k_rule != 0 ||
      caps.intermediate % k_rule != 0)
    return fmt::format("layout source_native: N % {} and K % {} must be 0; N is {} and {}, K is {} and {}", n_rule,
                       k_rule, caps.gate_up_rows(), caps.hidden, caps.hidden, caps.intermediate);
  return {};
}

std::string refusal(const Caps& caps, const B12xProblem& problem) {
  const bool trellis = problem.layout == Layout::trellis;
  if (caps.activation_dtype != DType::bf16 && caps.activation_dtype != DType::f16)
    return fmt::format("params_dtype {}: bf16 or fp16", dtype_name(caps.activation_dtype));
  if (!trellis && caps.format.format == WeightFormat::int4)
    return "source_format int4: w4a16 takes modelopt_nvfp4, compressed_tensors, fp4_e8m0_k32 and the Trellis formats";
  if (caps.gate_up_bias || caps.down_bias) return "bias: there is none anywhere";
  if (caps.activation.kind == ActivationKind::gelu_tanh)
    return "activation gelu_tanh: w4a16 takes silu, situ, relu2 and swigluoai_uninterleave";
  if (caps.global_experts > 0 && caps.global_experts < caps.experts)
    return fmt::format("global_num_experts {} is below the {} local experts", caps.global_experts, caps.experts);
  if (caps.global_experts > 0 && caps.activation_dtype != DType::bf16)
    return "params_dtype f16: ep_moe takes bf16 only";
  return trellis ? trellis_refusal(caps) : layout_refusal(caps, problem);
}

bool micro_serves(const Caps& caps, Layout layout) {
  if (layout != Layout::native || caps.activation_dtype != DType::bf16 || caps.router_weight_on_input ||
      caps.global_experts > 0 || caps.top_k > 32 || caps.hidden % 128 != 0 || caps.hidden > 6144 ||
      caps.intermediate % 16 != 0)
    return false;
  if (caps.format.format != WeightFormat::mxfp4) return true;
  return caps.intermediate % 32 == 0 && (caps.intermediate <= 256 || caps.intermediate % 256 == 0);
}

Layout layout_of(const Request& request, const Caps& caps) {
  if (request.system == "b12x-trellis" || caps.format.format == WeightFormat::exl3) return Layout::trellis;
  if (const auto asked = word_option(request, "layout", {"native", "packed"}))
    return *asked == "packed" ? Layout::packed : Layout::native;
  return caps.format.format == WeightFormat::mxfp4 && caps.intermediate % 128 == 0 ? Layout::packed : Layout::native;
}

/// Slots for the reduction planes: the packed routes, or the direct ones of small calls, whichever is more.
std::int64_t reduced_slots(const B12xProblem& problem, std::int64_t block, std::int64_t slots) {
  if (problem.layout != Layout::packed || problem.global_experts > 0) return slots;
  const std::int64_t direct = problem.bf16 && problem.gated ? kTensorDecodeTokens : kDirectTokens;
  for (std::int64_t tokens = 1; tokens <= std::min(problem.max_tokens, direct); ++tokens) {
    const std::int64_t own =
        problem.pinned_block > 0 ? problem.pinned_block : select_block(tokens, problem.top_k, problem.experts);
    if (own == block) slots = std::max(slots, product({tokens, problem.top_k, block}));
  }
  return slots;
}

/// The most that any of the blocks needs; `block` is the first that needs it.
struct Largest {
  std::int64_t count = 0, block = 0, slots = 0;
  void take(std::int64_t candidate, std::int64_t of, std::int64_t with_slots) {
    if (candidate > count) *this = {candidate, of, with_slots};
  }
};

struct RouteSizes {
  Largest slots, blocks, gate_up_words, down_words;
};

RouteSizes route_sizes(const B12xProblem& problem, std::int64_t routes, std::int64_t packed_experts) {
  RouteSizes sizes;
  const std::int64_t columns = problem.intermediate * (problem.gated ? 2 : 1);
  for (const std::int64_t block : b12x_blocks(problem)) {
    const std::int64_t slots = route_slots(routes, block, packed_experts);
    const std::int64_t reduced = reduced_slots(problem, block, slots);
    sizes.slots.take(slots, block, slots);
    sizes.blocks.take(ceil_div(slots, block), block, slots);
    sizes.gate_up_words.take(reduction_words(columns, reduced, block, problem.multiprocessors), block, reduced);
    sizes.down_words.take(reduction_words(problem.hidden, reduced, block, problem.multiprocessors), block, reduced);
  }
  return sizes;
}

void add_router(const B12xProblem& problem, Bill& bill) {
  const std::int64_t tokens = problem.max_tokens, routes = product({tokens, problem.top_k});
  bill.add("router_logits", product({tokens, problem.experts, 2}), "tokens x experts x 2",
           fmt::format("{} x {} x 2", tokens, problem.experts));
  const std::string numbers = fmt::format("{} x {} x 4", tokens, problem.top_k);
  for (const char* name : {"topk_logits", "topk_ids", "topk_weights"})
    bill.add(name, product({routes, 4}), "tokens x top_k x 4", numbers);
}

void add_caches(const B12xProblem& problem, std::int64_t capacity, Bill& bill) {
  const std::int64_t rows = product({capacity, problem.top_k}), n = problem.intermediate;
  const std::int64_t columns = n * (problem.gated ? 2 : 1);
  bill.add("intermediate_cache13", product({rows, std::max(columns, problem.hidden), 2}),
           "R x max(gate_up rows, hidden) x 2", fmt::format("{} x max({}, {}) x 2", rows, columns, problem.hidden));
  const std::int64_t micro_words =
      problem.micro
          ? product({std::min(capacity, kMicroTokens), ceil_div(n / 2, kMicroChunk) * kMicroChunk, problem.top_k})
          : 0;
  const std::int64_t plain = product({rows, n, 2}), micro = product({micro_words, 4});
  bill.add("intermediate_cache2", std::max(plain, micro),
           problem.micro ? "max(R x intermediate x 2, small-batch scratch)" : "R x intermediate x 2",
           problem.micro ? fmt::format("max({} x {} x 2, {})", rows, n, micro) : fmt::format("{} x {} x 2", rows, n));
}

void add_reduction(const char* name, const char* columns_name, std::int64_t columns, const Largest& words,
                   std::int64_t multiprocessors, Bill& bill) {
  const bool doubled = words.block == 8;
  bill.add(name, product({words.count, 4}),
           fmt::format("min({} x slots, SMs x 4 x block x 256){} x 4", columns_name, doubled ? " x 2" : ""),
           fmt::format("min({} x {}, {} x 4 x {} x 256){} x 4", columns, words.slots, multiprocessors, words.block,
                       doubled ? " x 2" : ""));
}

void add_trellis(const B12xProblem& problem, std::int64_t rows, Bill& bill) {
  bill.add("expert_counts", product({problem.experts, 4}), "experts x 4", fmt::format("{} x 4", problem.experts));
  bill.add("full_rotation_output", product({problem.max_tokens, problem.hidden, 4}), "tokens x hidden x 4",
           fmt::format("{} x {} x 4", problem.max_tokens, problem.hidden));
  for (const char* name : {"rotation_a_gate", "rotation_a_up"})
    bill.add(name, product({rows, problem.hidden, 2}), "R x hidden x 2",
             fmt::format("{} x {} x 2", rows, problem.hidden));
  bill.add("kernel_workspace", (4 * problem.multiprocessors + 2) * 4, "(4 x SMs + 2) x 4",
           fmt::format("(4 x {} + 2) x 4", problem.multiprocessors));
}

}  // namespace

std::int64_t b12x_bucket(std::int64_t tokens) noexcept {
  std::int64_t bucket = 1;
  while (bucket < tokens) bucket *= 2;
  return bucket;
}

std::int64_t b12x_capacity(const B12xProblem& problem) noexcept {
  return problem.layout == Layout::trellis ? problem.max_tokens : b12x_bucket(problem.max_tokens);
}

std::vector<std::int64_t> b12x_blocks(const B12xProblem& problem) {
  if (problem.pinned_block > 0) return {problem.pinned_block};
  const std::int64_t experts = problem.global_experts > 0 ? problem.global_experts : problem.experts;
  const std::int64_t last = select_block(b12x_capacity(problem), problem.top_k, experts);
  if (problem.layout == Layout::trellis) return {last};  // resolved once, for the largest count
  std::vector<std::int64_t> blocks;
  for (const std::int64_t block : kRouteBlocks)
    if (block >= select_block(1, problem.top_k, experts) && block <= last) blocks.push_back(block);
  return blocks;
}

B12xArena b12x_arena(const B12xProblem& problem) {
  const bool parallel = problem.global_experts > 0, trellis = problem.layout == Layout::trellis;
  const std::int64_t packed_experts = parallel ? problem.global_experts : problem.experts;
  const std::int64_t capacity = b12x_capacity(problem);
  // The expert-parallel planner rounds what it packs, not the rows that it computes.
  const std::int64_t row_tokens = parallel ? problem.max_tokens : capacity;
  const RouteSizes sizes = route_sizes(problem, product({capacity, problem.top_k}), packed_experts);

  B12xArena arena;
  Bill bill(kAlignment);
  if (!parallel) add_router(problem, bill);
  bill.align();
  arena.router_bytes = bill.bytes();
  add_caches(problem, row_tokens, bill);
  const std::int64_t columns = problem.intermediate * (problem.gated ? 2 : 1);
  add_reduction("fc1_c_tmp", "gate_up rows", columns, sizes.gate_up_words, problem.multiprocessors, bill);
  add_reduction("fc2_c_tmp", "hidden", problem.hidden, sizes.down_words, problem.multiprocessors, bill);
  bill.add("packed_route_indices", product({sizes.slots.count, 4}), "slots x 4",
           fmt::format("{} x 4", sizes.slots.count));
  bill.add("block_expert_ids", product({sizes.blocks.count, 4}), "ceil(slots / block) x 4",
           fmt::format("ceil({} / {}) x 4", sizes.blocks.slots, sizes.blocks.block));
  bill.add("packed_route_count", 4, "4", "4");
  bill.add("expert_offsets", (packed_experts + 1) * 4, "(experts + 1) x 4",
           fmt::format("({} + 1) x 4", packed_experts));
  if (trellis) add_trellis(problem, product({row_tokens, problem.top_k}), bill);
  if (parallel) bill.align();
  arena.core_bytes = bill.bytes() - arena.router_bytes;
  arena.segments = std::move(bill.segments);
  return arena;
}

ReferenceBill b12x_bill(const Request& request, const Caps& caps, const Device& device) {
  const Layout layout = layout_of(request, caps);
  if (layout == Layout::trellis)
    check_options(request, {"block", "bits"});
  else
    check_options(request, {"block", "layout"});
  number_option(request, "bits", {3, 4, 5, 6});  // the arena does not depend on it

  B12xProblem problem;
  problem.max_tokens = std::max<std::int64_t>(1, caps.max_tokens);  // b12x raises 0 to 1
  problem.top_k = caps.top_k;
  problem.experts = caps.experts;
  problem.global_experts = caps.global_experts;
  problem.hidden = caps.hidden;
  problem.intermediate = caps.intermediate;
  problem.gated = caps.activation.gated();
  problem.bf16 = caps.activation_dtype == DType::bf16;
  problem.layout = layout;
  problem.micro = micro_serves(caps, layout);
  problem.pinned_block = number_option(request, "block", {8, 16, 32, 48, 64}).value_or(0);
  problem.multiprocessors = device.multiprocessors;
  check(device.multiprocessors > 0, ErrorCode::unsupported,
        "device \"{}\" has no multiprocessors; name a GPU, or say how many: --sms 188", device.name);
  const std::string reason = refusal(caps, problem);
  check(reason.empty(), ErrorCode::unsupported, "{}", reason);

  B12xArena arena = b12x_arena(problem);
  ReferenceBill bill;
  bill.segments = std::move(arena.segments);
  bill.total_bytes = static_cast<std::uint64_t>(arena.total_bytes());
  bill.blocks = b12x_blocks(problem);
  bill.capacity_tokens = b12x_capacity(problem);
  bill.totals.emplace_back("core_bytes", arena.core_bytes);
  problem.pinned_block = kRouteBlocks.back();
  bill.totals.emplace_back("full_sweep_bytes", b12x_arena(problem).total_bytes());
  bill.notes.push_back(
      "runs on SM120 and SM121 only; priced for the multiprocessors of the device that is planned for");
  if (bill.capacity_tokens != caps.max_tokens)
    bill.notes.push_back(fmt::format("token capacity {} is rounded to {}", caps.max_tokens, bill.capacity_tokens));
  return bill;
}

}  // namespace fourfold::reference
