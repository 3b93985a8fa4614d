// Other systems' bills beside ours: `plan --compare`.
#include "plan_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fourfold::cli {
namespace {

std::string count(std::uint64_t value) { return format_count(static_cast<std::int64_t>(value)); }

std::string times_ours(const PlanReport& report, std::uint64_t bytes) {
  const std::uint64_t ours = report.max_workspace_bytes();
  return ours == 0 ? "-" : fmt::format("{:.1f}x", static_cast<double>(bytes) / static_cast<double>(ours));
}

std::string totals_table(const PlanReport& report) {
  const PlanRequest& request = report.request;
  Table table({"system", ">bytes", ">", ">KV tokens", ">of ours", "blocks", "what"});
  const auto add = [&](const std::string& system, std::uint64_t bytes, const std::string& blocks,
                       const std::string& what) {
    table.add({system, count(bytes), format_bytes(bytes),
               request.kv.known() ? format_count(request.kv.tokens(bytes)) : "-", times_ours(report, bytes), blocks,
               what});
  };
  if (!report.plans.empty()) add("fourfold", report.max_workspace_bytes(), "-", "workspace");
  for (const ReferenceBill& bill : report.bills) {
    if (!bill.refused.empty()) {
      table.add({bill.system, "-", "-", "-", "-", "-", "refused: " + bill.refused});
      continue;
    }
    add(bill.system, bill.total_bytes, fmt::format("{}", fmt::join(bill.blocks, ", ")), "total");
    for (const auto& [name, bytes] : bill.totals) add("", bytes, "", name);
  }
  return table.text();
}

std::string components(const PlanReport& report, const ReferenceBill& bill) {
  Table table({"component", ">bytes", ">", ">KV tokens", "formula", "numbers"});
  const KvPrice& kv = report.request.kv;
  for (const ReferenceSegment& segment : bill.segments)
    table.add({segment.name, count(segment.bytes), format_bytes(segment.bytes),
               kv.known() ? format_count(kv.tokens(segment.bytes)) : "-", segment.formula, segment.numbers});
  std::string text =
      fmt::format("\n{}, {} tokens\n{}", heading(bill.system), format_count(bill.capacity_tokens), table.text());
  for (const std::string& note : bill.notes) text += "  " + note + "\n";
  return text;
}

}  // namespace

Json compare_json(const PlanReport& report) {
  Json systems = Json::object();
  for (const ReferenceBill& bill : report.bills) {
    Json segments = Json::array();
    for (const ReferenceSegment& segment : bill.segments)
      segments.push_back({{"name", segment.name},
                          {"bytes", segment.bytes},
                          {"formula", segment.formula},
                          {"numbers", segment.numbers}});
    const bool refused = !bill.refused.empty();
    Json entry{{"refused", refused ? Json(bill.refused) : Json(nullptr)},
               {"total_bytes", refused ? Json(nullptr) : Json(bill.total_bytes)}};
    for (const auto& [name, bytes] : bill.totals) entry[name] = bytes;
    entry["kv_tokens"] =
        !refused && report.request.kv.known() ? Json(report.request.kv.tokens(bill.total_bytes)) : Json(nullptr);
    entry["blocks"] = bill.blocks;
    entry["capacity_tokens"] = bill.capacity_tokens;
    entry["segments"] = std::move(segments);
    entry["notes"] = bill.notes;
    systems[bill.system] = std::move(entry);
  }
  return systems;
}

std::string compare_text(const PlanReport& report) {
  std::string text = "\n" + heading("other systems, the same problem") + "\n" + totals_table(report);
  for (const ReferenceBill& bill : report.bills)
    if (bill.refused.empty()) text += components(report, bill);
  return text;
}

}  // namespace fourfold::cli
