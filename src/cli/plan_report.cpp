// What `plan` says of a request, as text.
#include "plan_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "device_choice.h"
#include "fourfold/error.h"
#include "fourfold/kernels.h"
#include "plan_compare.h"

namespace fourfold::cli {
namespace {

std::string count(std::uint64_t value) { return format_count(static_cast<std::int64_t>(value)); }

std::string step_text(const Plan& plan, int step) {
  const auto& steps = plan.steps();
  return step >= 0 && static_cast<std::size_t>(step) < steps.size() ? steps[step] : std::to_string(step);
}

std::string kv_tokens_text(const PlanRequest& request, std::uint64_t bytes) {
  return request.kv.known() ? format_count(request.kv.tokens(bytes)) : "-";
}

std::string bands_text(const Plan& plan) {
  Table bands({">tokens", ">token tile", ">column tile", "kernels"});
  for (const Band& band : plan.bands())
    bands.add({fmt::format("{} .. {}", format_count(band.min_tokens), format_count(band.max_tokens)),
               std::to_string(band.token_tile), std::to_string(band.column_tile),
               fmt::format("{}", fmt::join(band.kernels, ", "))});
  return bands.empty() ? "  none: no token count above 0 is served\n" : bands.text();
}

std::string unreachable_text(const PlanRequest& request, const Plan& plan) {
  const std::vector<UnreachableKernel> unreachable = unreachable_kernels(plan);
  if (unreachable.empty()) return "every kernel of this problem is reachable\n";
  Table table({"not reachable at this capacity", ">from tokens", ">workspace then", ">more", ">KV tokens"});
  for (const UnreachableKernel& kernel : unreachable) {
    const std::uint64_t more = kernel.workspace_bytes - plan.workspace_bytes();
    table.add({kernel.kernel, format_count(kernel.from_tokens), format_bytes(kernel.workspace_bytes),
               format_bytes(more), kv_tokens_text(request, more)});
  }
  return table.text();
}

std::string segments_text(const PlanRequest& request, const Plan& plan) {
  Table table({"segment", ">offset", ">bytes", ">KV tokens", "steps", "formula = numbers"});
  for (const Segment& segment : plan.segments())
    table.add({segment.name, count(segment.offset_bytes), count(segment.bytes), kv_tokens_text(request, segment.bytes),
               segment.first_step == segment.last_step
                   ? step_text(plan, segment.first_step)
                   : step_text(plan, segment.first_step) + " .. " + step_text(plan, segment.last_step),
               segment.formula + " = " + formula_numbers(plan, segment)});
  return table.text();
}

std::string ranks_text(const PlanReport& report) {
  Table table({">rank", ">tp", ">ep", ">experts", ">intermediate", ">workspace", ">KV tokens", ">weights a layer"});
  const auto& ranks = report.request.ranks;
  constexpr std::size_t kMostRows = 64;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostRows); ++i) {
    const RankShare& rank = ranks[i];
    table.add({std::to_string(rank.rank), std::to_string(rank.tp_rank), std::to_string(rank.ep_rank),
               fmt::format("{} from {}", rank.caps.experts, rank.first_expert),
               fmt::format("{} from {}", rank.caps.intermediate, rank.first_column),
               report.plans.empty() ? "-" : count(report.plans[i].workspace_bytes()),
               report.plans.empty() ? "-" : kv_tokens_text(report.request, report.plans[i].workspace_bytes()),
               count(report.plans.empty() ? layer_expert_bytes(rank.caps) : report.plans[i].weight_bytes())});
  }
  std::string text = "\n" + heading("ranks") + "\n" + table.text();
  if (ranks.size() > kMostRows) text += fmt::format("  ... {} more; --json has them all\n", ranks.size() - kMostRows);
  if (!report.plans.empty())
    text += fmt::format("largest {} bytes, together {} bytes\n", count(report.max_workspace_bytes()),
                        count(report.sum_workspace_bytes()));
  return text;
}

/// What a reservation leaves of the pool.
std::string left_text(const PlanRequest& request, std::uint64_t pool, std::uint64_t reserved,
                      const std::string& whose) {
  if (reserved > pool) return fmt::format("{} alone is {} bytes too large", whose, count(reserved - pool));
  if (!request.kv.known()) return fmt::format("{} left beside {}", format_bytes(pool - reserved), whose);
  return fmt::format("{} KV tokens beside {}", format_count(request.kv.tokens(pool - reserved)), whose);
}

std::string memory_text(const PlanReport& report) {
  const PlanRequest& request = report.request;
  const std::uint64_t own = layer_expert_bytes(report.caps());
  const std::uint64_t each = report.plans.empty() ? own : report.plans[report.shown].weight_bytes();
  std::string text = fmt::format("\nweights: {} bytes a layer ({})", count(each), priced(request, each));
  if (request.layers > 1)
    text += fmt::format(", {} for {} layers", format_bytes(report.expert_total_bytes()), request.layers);
  text += fmt::format("; the format's own bytes are {}\n", count(own));
  if (const std::uint64_t missing = report.memory_short_bytes(); missing > 0)
    text += marked(fmt::format("they do not fit: {} bytes of experts, {} bytes of memory, short by {} ({})",
                               count(report.expert_total_bytes()), format_count(request.device.memory_bytes),
                               count(missing), priced(request, missing)),
                   false) +
            "\n";
  if (request.kv.known())
    text += fmt::format("KV cache: {:.1f} bytes a token on a rank; 100 MiB are {} tokens\n",
                        request.kv.bytes_per_token(), format_count(request.kv.tokens(100ull << 20)));
  if (request.pool) {
    const std::uint64_t arena = report.max_workspace_bytes();
    const auto pool = static_cast<std::uint64_t>(*request.pool);
    text += fmt::format("pool: {} bytes for arena and KV cache ({})\n", count(pool), request.pool_text);
    if (!report.plans.empty()) text += "  " + left_text(request, pool, arena, "this arena") + "\n";
    for (const ReferenceBill& bill : report.bills)
      if (bill.refused.empty()) text += "  " + left_text(request, pool, bill.total_bytes, bill.system + "'s") + "\n";
  }
  return text;
}

std::string graph_text(const PlanReport& report, bool explain) {
  if (report.request.capture.empty() || report.plans.empty()) return {};
  const GraphEstimate graph = graph_estimate(report);
  std::string text = fmt::format("graphs: {} size{}, {} kernel nodes of this library; pool about {}\n",
                                 report.request.capture.size(), report.request.capture.size() == 1 ? "" : "s",
                                 format_count(graph.nodes), priced(report.request, graph.pool_bytes));
  if (!explain) return text;
  return text +
         "  nodes: a graph a size, each launch of the size's band, times layers; exact, and the engine's own come on "
         "top\n"
         "  pool: x and out of the largest size, once, because sizes share a pool and layers run one after another; "
         "an\n"
         "    assumption about the engine, which may keep more. Nothing is allocated under capture by this library.\n"
         "    The driver's own memory for nodes is not known before they are captured and is not counted\n";
}

std::string explain_text(const Plan& plan) {
  if (plan.declined().empty()) return "\n" + heading("declined") + "\n  none\n";
  Table table({"candidate", "reason"});
  for (const Declined& entry : plan.declined()) table.add({entry.candidate, entry.reason});
  return "\n" + heading("declined") + "\n" + table.text();
}

}  // namespace

std::string priced(const PlanRequest& request, std::uint64_t bytes) {
  std::string text = format_bytes(bytes);
  if (request.kv.known()) text += fmt::format(", {} KV tokens", format_count(request.kv.tokens(bytes)));
  return text;
}

std::uint64_t PlanReport::max_workspace_bytes() const noexcept {
  return plans.empty() ? 0 : plans[shown].workspace_bytes();
}

std::uint64_t PlanReport::sum_workspace_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Plan& each : plans) sum += each.workspace_bytes();
  return sum;
}

std::uint64_t PlanReport::expert_total_bytes() const {
  const std::uint64_t each = plans.empty() ? layer_expert_bytes(caps()) : plans[shown].weight_bytes();
  const auto layers = static_cast<std::uint64_t>(request.layers);
  if (each > static_cast<std::uint64_t>(INT64_MAX) / layers)
    throw Error(ErrorCode::unsupported,
                fmt::format("{} bytes a layer for {} layers are no size below 2^63", each, request.layers));
  return each * layers;
}

std::uint64_t PlanReport::memory_short_bytes() const {
  const std::uint64_t needed = expert_total_bytes();
  const auto memory = static_cast<std::uint64_t>(std::max<std::int64_t>(0, request.device.memory_bytes));
  return memory > 0 && needed > memory ? needed - memory : 0;
}

GraphEstimate graph_estimate(const PlanReport& report) {
  GraphEstimate estimate;
  const Plan& decision = report.plans[report.shown];
  std::int64_t largest = 0;
  for (const std::int64_t tokens : report.request.capture) {
    estimate.nodes += kernel_launches(decision, tokens) * report.request.layers;
    largest = std::max(largest, tokens);
  }
  const std::int64_t value_bytes = report.caps().activation_dtype == DType::f32 ? 4 : 2;
  estimate.pool_bytes = static_cast<std::uint64_t>(2 * largest * report.caps().hidden * value_bytes);
  return estimate;
}

PlanReport make_report(PlanRequest request, const std::vector<std::string>& systems) {
  PlanReport report;
  report.request = std::move(request);
  const auto& ranks = report.request.ranks;
  std::vector<std::string> asked = systems;
  if (ranks.front().caps.format.format == WeightFormat::exl3) {
    layer_expert_bytes(ranks.front().caps);  // throws for sizes that the format does not have
    report.refused = can_implement(ranks.front().caps, report.request.device).reason;
    if (asked.empty() && report.request.device.kind == DeviceKind::cuda) asked.push_back("b12x-trellis");
  } else {
    for (const RankShare& rank : ranks) report.plans.push_back(plan(rank.caps, report.request.device));
    for (std::size_t i = 0; i < report.plans.size(); ++i)
      if (report.plans[i].workspace_bytes() > report.plans[report.shown].workspace_bytes()) report.shown = i;
  }
  for (const std::string& system : asked)
    report.bills.push_back(reference_bill(system, report.caps(), report.request.device));
  return report;
}

std::string report_text(const PlanReport& report, bool explain) {
  const PlanRequest& request = report.request;
  std::string text = fmt::format("{} on {}\n", problem_text({report.caps(), request.problem.tokens, {}}),
                                 full_device_text(request.device));
  if (request.model)
    text += fmt::format("  {}: {} of {} layers have experts\n",
                        request.model->architecture.empty() ? request.model->file : request.model->architecture,
                        request.layers, request.model->layers);
  if (request.split)
    text += fmt::format("  rank {} of {}, the one with the largest workspace\n", request.ranks[report.shown].rank,
                        request.ranks.size());
  if (!request.device.isa_fallback_reason.empty()) text += "  " + request.device.isa_fallback_reason + "\n";
  if (!report.refused.empty()) {
    text += "  refused: " + report.refused + "\n";
  } else {
    const Plan& decision = report.plans[report.shown];
    text += "\n" + heading("bands") + "\n" + bands_text(decision) + "\n" + unreachable_text(request, decision);
    if (explain) text += explain_text(decision);
    text += fmt::format("\n{}: {} bytes ({})\n", heading("workspace"), count(decision.workspace_bytes()),
                        priced(request, decision.workspace_bytes()));
    text += segments_text(request, decision);
  }
  text += memory_text(report);
  text += graph_text(report, explain);
  if (request.split) text += ranks_text(report);
  if (!report.bills.empty()) text += compare_text(report);
  std::vector<std::string> notes = request.notes;
  if (!report.plans.empty()) {
    const auto& more = report.plans[report.shown].notes();
    notes.insert(notes.end(), more.begin(), more.end());
  }
  if (!notes.empty()) text += "\n" + heading("notes") + "\n";
  for (const std::string& note : notes) text += "  " + note + "\n";
  return text;
}

}  // namespace fourfold::cli
