// How a CPU serves a problem. Every band does the same arithmetic per (row, token), so a token's bits depend on
// neither the batch nor the band: bands differ in where codes are decoded, registers or scratch.
#include "plan/cpu_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "plan/arena.h"
#include "plan/cpu_tiles.h"
#include "plan/cpu_weight_layout.h"

namespace fourfold {
namespace {

// Multiply-adds below which a second thread costs more (waking it, four barriers: a few microseconds) than it saves.
constexpr std::int64_t kSerialMultiplyAdds = 600'000;
// Column tiles per thread that keep threads evenly loaded while the last tiles finish.
constexpr std::int64_t kTilesPerThread = 4;

std::string kernel_format(const FormatSpec& format) {
  std::string name(weight_format_name(format.format));
  if (format.zero_points) name += "_zeros";
  return name;
}

/// int4 experts keep their scales in the narrowest dtype that holds them, so each of the three can be met.
std::vector<std::string> with_scales(const std::string& kernel, const FormatSpec& format) {
  if (format.format != WeightFormat::int4) return {kernel};
  return {kernel + ".bf16_scales", kernel + ".f16_scales", kernel + ".f32_scales"};
}

/// Narrower tiles for more threads. Independent of max_tokens, or the workspace would not grow with it.
std::int64_t column_tile(const Caps& caps, int threads) {
  std::int64_t tile = cpu::kCallColumns;
  while (tile > cpu::kPanelRows && ceil_div(caps.hidden, tile) < kTilesPerThread * threads &&
         // Two panels share a pass over the tokens; narrower only to occupy every thread.
         (tile > cpu::kUnpackedPanels * cpu::kPanelRows || ceil_div(caps.hidden, tile) < threads))
    tile /= 2;
  return tile;
}

void plan_bands(PlanData& data) {
  const Caps& caps = data.caps;
  if (caps.max_tokens == 0) return;
  const char* compute = cpu_bf16_dot(caps, data.device) ? "" : data.device.isa == CpuIsa::avx512_bf16 ? ".f32" : "";
  const std::string isa = fmt::format("cpu.{}{}", cpu_isa_name(data.device.isa), compute);
  const std::string format = kernel_format(caps.format);
  const std::string direct = fmt::format("{}.direct.{}", isa, format);
  const std::string blocked = fmt::format("{}.blocked.{}", isa, format);
  const std::int64_t tile = column_tile(caps, data.device.threads);
  // Without repeated ids an expert gets at most one route a token. (With them the direct kernel takes several passes.)
  const std::int64_t direct_tokens = std::min<std::int64_t>(caps.max_tokens, cpu_direct_tokens(data.device));
  std::vector<std::string> kernels = with_scales(direct, caps.format);
  const std::string shared[] = {fmt::format("{}.activate.{}", isa, activation_name(caps.activation.kind)),
                                fmt::format("{}.accumulate", isa)};
  kernels.insert(kernels.end(), std::begin(shared), std::end(shared));
  data.bands.push_back({1, direct_tokens, kernels, cpu_direct_tokens(data.device), tile});
  if (direct_tokens == caps.max_tokens) return;
  const std::vector<std::string> blocks = with_scales(blocked, caps.format);
  kernels.insert(kernels.begin() + static_cast<std::ptrdiff_t>(blocks.size()), blocks.begin(), blocks.end());
  data.bands.push_back({direct_tokens + 1, caps.max_tokens, kernels, cpu::kTokenTile, tile});
}

void plan_segments(PlanData& data) {
  const Caps& caps = data.caps;
  const bool bf16 = cpu_bf16_dot(caps, data.device);
  const std::int64_t value_bytes = bf16 ? 2 : 4;
  const std::int64_t tokens = caps.max_tokens;
  const std::int64_t routes = checked_mul(tokens, caps.top_k, "routes (max_tokens x top_k)");
  const std::int64_t hidden = round_up(caps.hidden, cpu::kStepColumns);
  const std::int64_t intermediate = round_up(caps.intermediate, cpu::kStepColumns);
  const auto plane = [](std::int64_t rows, std::int64_t row_bytes, const char* what) {
    return checked_mul(rows, row_bytes, what);
  };
  Arena arena;
  CpuSegments& cpu = data.cpu;
  cpu.expert_offsets =
      arena.add("expert_offsets", tokens == 0 ? 0 : (caps.experts + 1) * 8, kCpuRoute, kCpuDown, "(experts + 1) * 8");
  cpu.active_experts =
      arena.add("active_experts", std::min(caps.experts, routes) * 4, kCpuRoute, kCpuDown, "min(experts, routes) * 4");
  cpu.sorted_routes = arena.add("sorted_routes", plane(routes, 8, "sorted routes"), kCpuRoute, kCpuDown, "routes * 8");
  const bool in_place = (bf16 || caps.activation_dtype == DType::f32) && hidden == caps.hidden;
  if (!in_place)
    cpu.x_rows = arena.add("x_rows", plane(tokens, hidden * value_bytes, "gathered activations"), kCpuGather,
                           kCpuGateUp, fmt::format("tokens * (hidden padded to 16) * {}", value_bytes));
  cpu.activated =
      arena.add("activated", plane(routes, intermediate * value_bytes, "activated intermediate"), kCpuGateUp, kCpuDown,
                fmt::format("routes * (intermediate padded to 16) * {}", value_bytes));
  const std::int64_t threads = tokens == 0 ? 0 : data.device.threads;
  const std::int64_t tile = tokens == 0 ? 0 : data.bands.front().column_tile;
  cpu.output_sums = arena.add("output_sums", plane(threads, plane(tokens, tile * 4, "output sums"), "output sums"),
                              kCpuDown, kCpuStore, fmt::format("threads * tokens * {} columns * 4", tile));
  const std::int64_t scratch = round_up(cpu::thread_scratch_bytes(bf16), static_cast<std::int64_t>(kSegmentAlignment));
  cpu.thread_scratch = arena.add("thread_scratch", plane(threads, scratch, "thread scratch"), kCpuGateUp, kCpuDown,
                                 fmt::format("threads * {}", scratch));
  arena.place();
  data.segments = arena.segments();
  data.workspace_bytes = arena.bytes();
}

void explain(PlanData& data) {
  const Caps& caps = data.caps;
  const Device& device = data.device;
  const CpuIsa isas[] = {CpuIsa::avx512_bf16, CpuIsa::avx512, CpuIsa::avx2, CpuIsa::portable};
  for (const CpuIsa isa : isas) {
    const std::string candidate = fmt::format("cpu.{}", cpu_isa_name(isa));
    if (isa > device.isa)
      data.declined.push_back({candidate, device.isa_fallback_reason.empty()
                                              ? fmt::format("the device is {}", cpu_isa_name(device.isa))
                                              : device.isa_fallback_reason});
    else if (isa < device.isa)
      data.declined.push_back({candidate, fmt::format("{} is wider", cpu_isa_name(device.isa))});
  }
  const bool bf16 = cpu_bf16_dot(caps, device);
  if (device.isa == CpuIsa::avx512_bf16 && !bf16)
    data.declined.push_back({"cpu.avx512_bf16 dot product",
                             fmt::format("activations are {}, which bf16 cannot hold exactly; fp32 FMA instead",
                                         dtype_name(caps.activation_dtype))});
  if (data.bands.size() == 1)
    data.declined.push_back({fmt::format("cpu.{}.blocked", cpu_isa_name(device.isa)),
                             fmt::format("max_tokens = {} stays within the direct kernel's {}", caps.max_tokens,
                                         cpu_direct_tokens(device))});
  data.notes.push_back(
      "batch_invariant: always so on a CPU and free of cost; every band does the same operations in the same order");
  data.notes.push_back(bf16 ? "subnormals: the bf16 dot product reads subnormal bf16 activations as zero and flushes "
                              "subnormal products and sums of a group; weights and scales are never flushed"
                            : "subnormals: none is flushed, whatever the caller's floating-point mode");
  if (caps.format.format == WeightFormat::int4)
    data.notes.push_back(
        "int4 scales: kept in 16 bits (bf16 or f16, per expert); an expert whose scales fit neither "
        "keeps them in fp32, which adds to the weight bytes");
  if (caps.max_tokens > 0 && device.threads > 1 && cpu_threads(data, 1) == 1)
    data.notes.push_back(fmt::format("threads: calls below {} multiply-adds run on one thread", kSerialMultiplyAdds));
}

}  // namespace

bool cpu_bf16_dot(const Caps& caps, const Device& device) noexcept {
  return device.isa == CpuIsa::avx512_bf16 && caps.activation_dtype == DType::bf16;
}

int cpu_direct_tokens(const Device& device) noexcept {
  // What fits into one or two passes of the registers that hold the sums.
  return device.isa >= CpuIsa::avx512 ? 6 : device.isa == CpuIsa::avx2 ? 4 : 2;
}

int cpu_threads(const PlanData& data, std::int64_t tokens) noexcept {
  const Caps& caps = data.caps;
  const double work = static_cast<double>(tokens) * static_cast<double>(caps.top_k) *
                      static_cast<double>(caps.gate_up_rows() + caps.intermediate) * static_cast<double>(caps.hidden);
  return work < static_cast<double>(kSerialMultiplyAdds) ? 1 : data.device.threads;
}

void plan_cpu(PlanData& data) {
  data.steps = {"route", "gather", "gate_up", "down", "store"};
  plan_bands(data);
  plan_segments(data);
  data.weight_bytes = static_cast<std::uint64_t>(cpu_weight_layout(data.caps).total_bytes);
  explain(data);
}

}  // namespace fourfold
