// What one runner of FlashInfer's CuTe DSL W4A16 path keeps: permuted activations and the activated intermediate, one
// arena for each route tile that its autotuner tried. Source: FlashInfer 0.6 and its pull request 4558.
#include "plan/reference/flashinfer.h"

#include <fmt/format.h>

#include <array>

#include "core/check.h"

namespace fourfold::reference {
namespace {

constexpr std::array<std::int64_t, 6> kRouteTiles{8, 16, 32, 64, 128, 192};
constexpr std::int64_t kAlignment = 1;  // allocations of their own

std::string refusal(const Caps& caps) {
  if (caps.format.format != WeightFormat::nvfp4)
    return fmt::format("quant_mode w4a16: NVFP4 weights only, not {}", weight_format_name(caps.format.format));
  if (caps.activation_dtype != DType::bf16)
    return fmt::format("output dtype {}: w4a16 takes and gives bf16 only", dtype_name(caps.activation_dtype));
  if (caps.gate_up_bias || caps.down_bias) return "bias: the CuTe DSL path has none";
  if (caps.router_weight_on_input) return "router weight on the input: the CuTe DSL path applies it in the finalise";
  return {};
}

std::int64_t arena_bytes(const Caps& caps, std::int64_t tile) {
  const std::int64_t rows = flashinfer_rows(product({caps.max_tokens, caps.top_k}), caps.experts, tile);
  return checked_add(product({rows, caps.hidden, 2}), product({rows, caps.intermediate, 2}), "an arena");
}

}  // namespace

std::int64_t flashinfer_rows(std::int64_t routes, std::int64_t experts, std::int64_t tile) {
  if (routes <= experts) return product({routes, tile});
  return checked_add(routes, product({experts, tile - 1}), "permuted rows") / tile * tile;
}

ReferenceBill flashinfer_bill(const Request& request, const Caps& caps, const Device&) {
  check_options(request, {"tile", "tactics"});
  const std::int64_t tile = number_option(request, "tile", {8, 16, 32, 64, 128, 192}).value_or(128);
  const std::int64_t tactics = number_option(request, "tactics", {1, 2, 3, 4, 5, 6}).value_or(1);
  const std::string reason = refusal(caps);
  check(reason.empty(), ErrorCode::unsupported, "{}", reason);
  const std::int64_t rows = flashinfer_rows(product({caps.max_tokens, caps.top_k}), caps.experts, tile);

  Bill bill(kAlignment);
  const std::string times = tactics == 1 ? "" : " x tactics";
  const auto add = [&](const char* name, std::int64_t width, const char* width_name) {
    bill.add(name, product({rows, width, 2, tactics}), fmt::format("rows x {} x 2{}", width_name, times),
             fmt::format("{} x {} x 2{}", rows, width, tactics == 1 ? "" : fmt::format(" x {}", tactics)));
  };
  add("permuted_activations", caps.hidden, "hidden");
  add("activated_intermediate", caps.intermediate, "intermediate");

  ReferenceBill result;
  result.total_bytes = static_cast<std::uint64_t>(bill.bytes());
  result.segments = std::move(bill.segments);
  result.blocks = {tile};
  result.capacity_tokens = caps.max_tokens;
  std::int64_t retained = 0;
  for (const std::int64_t each : kRouteTiles) retained = checked_add(retained, arena_bytes(caps, each), "all arenas");
  result.totals.emplace_back("retained_bytes", retained);
  result.notes.push_back("before pull request 4558, for each layer's runner; since then scratch belongs to the call");
  result.notes.push_back("the W4A16 path runs on SM100, SM103 and SM107 only");
  return result;
}

}  // namespace fourfold::reference
