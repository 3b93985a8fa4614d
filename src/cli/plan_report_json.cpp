// What `plan` says of a request, as JSON.
#include <fmt/format.h>

#include "fourfold/kernels.h"
#include "plan_compare.h"
#include "plan_report.h"

namespace fourfold::cli {
namespace {

Json kv_tokens(const PlanRequest& request, std::uint64_t bytes) {
  return request.kv.known() ? Json(request.kv.tokens(bytes)) : Json(nullptr);
}

Json device_json(const Device& device) {
  if (device.kind == DeviceKind::cpu)
    return {{"kind", "cpu"}, {"name", device.name}, {"isa", cpu_isa_name(device.isa)}, {"threads", device.threads}};
  return {{"kind", "cuda"},
          {"name", device.name},
          {"arch", device.arch},
          {"multiprocessors", device.multiprocessors},
          {"shared_memory_bytes", device.shared_memory_bytes},
          {"memory_bytes", device.memory_bytes}};
}

void add_plan(const PlanRequest& request, const Plan& plan, Json& json) {
  Json segments = Json::array(), bands = Json::array(), declined = Json::array(), unreachable = Json::array();
  for (const Segment& segment : plan.segments())
    segments.push_back({{"name", segment.name},
                        {"offset", segment.offset_bytes},
                        {"bytes", segment.bytes},
                        {"kv_tokens", kv_tokens(request, segment.bytes)},
                        {"first_step", segment.first_step},
                        {"last_step", segment.last_step},
                        {"formula", segment.formula},
                        {"numbers", formula_numbers(plan, segment)}});
  for (const Band& band : plan.bands())
    bands.push_back({{"min_tokens", band.min_tokens},
                     {"max_tokens", band.max_tokens},
                     {"token_tile", band.token_tile},
                     {"column_tile", band.column_tile},
                     {"kernels", band.kernels}});
  for (const Declined& entry : plan.declined())
    declined.push_back({{"candidate", entry.candidate}, {"reason", entry.reason}});
  for (const UnreachableKernel& kernel : unreachable_kernels(plan))
    unreachable.push_back({{"kernel", kernel.kernel},
                           {"from_tokens", kernel.from_tokens},
                           {"workspace_bytes", kernel.workspace_bytes},
                           {"kv_tokens", kv_tokens(request, kernel.workspace_bytes - plan.workspace_bytes())}});
  json["workspace_bytes"] = plan.workspace_bytes();
  json["weight_bytes"] = plan.weight_bytes();
  json["steps"] = plan.steps();
  json["segments"] = std::move(segments);
  json["bands"] = std::move(bands);
  json["kernels"] = plan.kernels();
  json["unreachable"] = std::move(unreachable);
  json["declined"] = std::move(declined);
}

Json ranks_json(const PlanReport& report) {
  Json each = Json::array();
  for (std::size_t i = 0; i < report.request.ranks.size(); ++i) {
    const RankShare& rank = report.request.ranks[i];
    Json entry{{"rank", rank.rank},
               {"tp_rank", rank.tp_rank},
               {"ep_rank", rank.ep_rank},
               {"first_expert", rank.first_expert},
               {"experts", rank.caps.experts},
               {"first_column", rank.first_column},
               {"intermediate", rank.caps.intermediate},
               {"expert_bytes", layer_expert_bytes(rank.caps)},
               {"workspace_bytes", nullptr},
               {"weight_bytes", nullptr}};
    if (!report.plans.empty()) {
      entry["workspace_bytes"] = report.plans[i].workspace_bytes();
      entry["weight_bytes"] = report.plans[i].weight_bytes();
    }
    each.push_back(std::move(entry));
  }
  return {{"max_workspace_bytes", report.max_workspace_bytes()},
          {"sum_workspace_bytes", report.sum_workspace_bytes()},
          {"shown", report.request.ranks[report.shown].rank},
          {"each", std::move(each)}};
}

Json model_json(const ModelShape& model) {
  return {{"file", model.file},
          {"architecture", model.architecture},
          {"layers", model.layers},
          {"moe_layers", model.moe_layers},
          {"draft_layers", model.draft_layers},
          {"file_bytes", model.file_bytes},
          {"file_expert_bytes", model.file_expert_bytes}};
}

}  // namespace

Json report_json(const PlanReport& report) {
  const PlanRequest& request = report.request;
  Json json{{"problem", problem_text({report.caps(), request.problem.tokens, {}})},
            {"device", device_json(request.device)},
            {"refused", report.refused.empty() ? Json(nullptr) : Json(report.refused)},
            {"workspace_bytes", nullptr},
            {"weight_bytes", nullptr}};
  if (!report.plans.empty()) add_plan(request, report.plans[report.shown], json);
  json["expert_bytes"] = layer_expert_bytes(report.caps());
  json["layers"] = request.layers;
  json["expert_total_bytes"] = report.expert_total_bytes();
  json["memory_short_bytes"] = report.memory_short_bytes();
  json["model"] = request.model ? model_json(*request.model) : Json(nullptr);
  json["kv"] = nullptr;
  if (request.kv.known())
    json["kv"] = {{"bytes_per_token", request.kv.bytes_per_token()},
                  {"workspace_tokens", kv_tokens(request, report.max_workspace_bytes())},
                  {"weight_tokens", kv_tokens(request, report.expert_total_bytes())}};
  json["pool"] = nullptr;
  if (request.pool) {
    const auto pool = static_cast<std::uint64_t>(*request.pool);
    const auto left = [&](std::uint64_t arena) { return kv_tokens(request, arena <= pool ? pool - arena : 0); };
    json["pool"] = {{"bytes", pool},
                    {"kv_tokens", report.plans.empty() ? Json(nullptr) : left(report.max_workspace_bytes())},
                    {"reference", Json::object()}};
    for (const ReferenceBill& bill : report.bills)
      json["pool"]["reference"][bill.system] = bill.refused.empty() ? left(bill.total_bytes) : Json(nullptr);
  }
  json["graph"] = nullptr;
  if (!request.capture.empty() && !report.plans.empty()) {
    const GraphEstimate graph = graph_estimate(report);
    Json launches = Json::array();
    for (const std::int64_t tokens : request.capture)
      launches.push_back(kernel_launches(report.plans[report.shown], tokens));
    json["graph"] = {{"sizes", request.capture},
                     {"launches", std::move(launches)},
                     {"nodes", graph.nodes},
                     {"pool_bytes", graph.pool_bytes},
                     {"kv_tokens", kv_tokens(request, graph.pool_bytes)}};
  }
  json["ranks"] = ranks_json(report);
  json["reference"] = compare_json(report);
  Json notes = request.notes;
  if (!report.plans.empty())
    for (const std::string& note : report.plans[report.shown].notes()) notes.push_back(note);
  json["notes"] = std::move(notes);
  return json;
}

}  // namespace fourfold::cli
