// What vLLM's fused Marlin MoE allocates for a call, and what its serving stack provisions. Source: the sizes that the
// host code asks for (vLLM's fused_marlin_moe), as published for 132 multiprocessors.
#include "plan/reference/marlin.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "plan/reference/route_blocks.h"

namespace fourfold::reference {
namespace {

constexpr std::int64_t kAlignment = 1;  // allocations of their own

std::string refusal(const Caps& caps) {
  if (caps.activation_dtype != DType::bf16 && caps.activation_dtype != DType::f16)
    return fmt::format("hidden_states {}: float16 or bfloat16", dtype_name(caps.activation_dtype));
  if (caps.format.format == WeightFormat::exl3)
    return "quant type exl3: Marlin has uint4, uint4b8, fp4 and 8-bit types";
  const ActivationKind kind = caps.activation.kind;
  if (kind == ActivationKind::situ) return "activation situ: unknown to the fused path";
  if (caps.hidden % 64 != 0 || caps.gate_up_rows() % 64 != 0)
    return fmt::format("size_n {} and {}: min_thread_n is 64, size_n must be divisible by it", caps.gate_up_rows(),
                       caps.hidden);
  if (caps.hidden % 64 != 0 || caps.intermediate % 64 != 0)
    return fmt::format("size_k {} and {}: min_thread_k is 64, size_k must be divisible by it", caps.hidden,
                       caps.intermediate);
  return {};
}

}  // namespace

MarlinSizes marlin_sizes(const Caps& caps, std::int64_t multiprocessors) {
  MarlinSizes sizes;
  sizes.routes = product({caps.max_tokens, caps.top_k});
  const std::int64_t tokens = std::max<std::int64_t>(1, caps.max_tokens);
  // The block is chosen by the experts that are here; routes are padded for all that ids can name.
  sizes.block = select_block(tokens, caps.top_k, caps.experts);
  sizes.slots = route_slots(sizes.routes, sizes.block, caps.id_count());
  sizes.gate_up_words = reduction_words(caps.gate_up_rows(), sizes.slots, sizes.block, multiprocessors);
  sizes.down_words = reduction_words(caps.hidden, sizes.slots, sizes.block, multiprocessors);
  return sizes;
}

ReferenceBill marlin_bill(const Request& request, const Caps& caps, const Device& device) {
  check_options(request, {});
  check(device.multiprocessors > 0, ErrorCode::unsupported,
        "device \"{}\" has no multiprocessors; name a GPU, or say how many: --sms 132", device.name);
  const std::string reason = refusal(caps);
  check(reason.empty(), ErrorCode::unsupported, "{}", reason);
  const MarlinSizes sizes = marlin_sizes(caps, device.multiprocessors);
  const std::int64_t columns = caps.gate_up_rows(), sms = device.multiprocessors, experts = caps.id_count();

  Bill bill(kAlignment);
  bill.add("intermediate_cache13", product({sizes.routes, std::max(columns, caps.hidden), 2}),
           "routes x max(gate_up rows, hidden) x 2",
           fmt::format("{} x max({}, {}) x 2", sizes.routes, columns, caps.hidden));
  bill.add("intermediate_cache2", product({sizes.routes, caps.intermediate, 2}), "routes x intermediate x 2",
           fmt::format("{} x {} x 2", sizes.routes, caps.intermediate));
  // The first projection's is freed before the second's is asked for: the larger one counts.
  const std::int64_t words = std::max(sizes.gate_up_words, sizes.down_words);
  bill.add("c_tmp", product({words, 4}),
           fmt::format("min(max(gate_up rows, hidden) x slots, SMs x 4 x block x 256){} x 4",
                       sizes.block == 8 ? " x 2" : ""),
           fmt::format("min({} x {}, {} x 4 x {} x 256){} x 4", std::max(columns, caps.hidden), sizes.slots, sms,
                       sizes.block, sizes.block == 8 ? " x 2" : ""));
  bill.add("sorted_token_ids", product({sizes.slots, 4}), "slots x 4", fmt::format("{} x 4", sizes.slots));
  const std::int64_t blocks = ceil_div(sizes.slots, sizes.block);
  bill.add("expert_ids", product({blocks, 4}), "ceil(slots / block) x 4",
           fmt::format("ceil({} / {}) x 4", sizes.slots, sizes.block));
  bill.add("cumsum", (experts + 1) * 4, "(experts + 1) x 4", fmt::format("({} + 1) x 4", experts));
  bill.add("num_tokens_post_padded", 4, "4", "4");
  bill.add("locks", sms * 4 * 4, "SMs x 4 x 4", fmt::format("{} x 4 x 4", sms));

  ReferenceBill result;
  result.total_bytes = static_cast<std::uint64_t>(bill.bytes());
  // Two row buffers, each wide enough for hidden; the layer's output lies in one of them.
  const std::int64_t second = product({sizes.routes, std::max(caps.intermediate, caps.hidden), 2});
  const std::int64_t direct_second = product({sizes.routes, caps.intermediate, 2});
  result.totals.emplace_back("provisioned_bytes", checked_add(bill.bytes(), second - direct_second, "the total"));
  result.segments = std::move(bill.segments);
  result.blocks = {sizes.block};
  result.capacity_tokens = caps.max_tokens;
  result.notes.push_back("peak of one call of max_tokens; the layer's output is the caller's and not counted");
  result.notes.push_back("provisioned_bytes: two buffers of routes x max(.., hidden), as the serving stack makes them");
  return result;
}

}  // namespace fourfold::reference
