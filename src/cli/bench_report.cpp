// Rows, pairs and variants as JSON and as tables.
#include "bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "fourfold_version.h"

namespace fourfold::cli {
namespace {

constexpr std::string_view kCommit = FOURFOLD_COMMIT, kDirtySuffix = "-dirty", kUnknown = "unknown";

Json time_json(const BenchmarkTime& time) {
  return Json{{"median_us", time.median_us},
              {"low_us", time.low_us},
              {"high_us", time.high_us},
              {"p10_us", time.p10_us},
              {"p90_us", time.p90_us}};
}

Json clocks_json(const ClockReadings& clocks) {
  if (clocks.samples == 0) return nullptr;
  return Json{{"samples", clocks.samples},       {"sm_mhz_median", clocks.sm_mhz_median},
              {"sm_mhz_p05", clocks.sm_mhz_p05}, {"power_w_median", clocks.power_w_median},
              {"throttle", clocks.throttle},     {"throttled_share", clocks.throttled_share}};
}

std::string number(double value, int digits) { return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits); }

std::string stage_us(const BenchmarkRow& row, std::string_view name) {
  for (const StageTime& stage : row.stages)
    if (stage.name == name) return number(stage.us, 1);
  return "-";
}

std::string clock_text(const ClockReadings& clocks) {
  if (clocks.samples == 0) return "-";
  return fmt::format("{:.0f}{}", clocks.sm_mhz_median, clocks.throttle.empty() ? "" : "*");
}

std::string percent(double share) { return fmt::format("{:+.2f} %", 100 * share); }

}  // namespace

std::string build_commit() {
  return std::string(kCommit.ends_with(kDirtySuffix) ? kCommit.substr(0, kCommit.size() - kDirtySuffix.size())
                                                     : kCommit);
}
bool build_is_dirty() { return kCommit.ends_with(kDirtySuffix) || kCommit == kUnknown; }

Json row_json(const NamedCase& named, const BenchmarkRow& row) {
  Json stages = Json::object();
  for (const StageTime& stage : row.stages) stages[stage.name + "_us"] = stage.us;
  const Caps& caps = named.subject.caps;
  return Json{{"problem", named.problem},
              {"shape", named.shape},
              {"tokens", caps.max_tokens},
              {"format", std::string(weight_format_name(caps.format.format))},
              {"routing", std::string(routing_name(named.subject.routing))},
              {"capacity", named.subject.capacity > 0 ? named.subject.capacity : caps.max_tokens},
              {"slices", row.slices},
              {"gate_up_shape", named.subject.gate_up_shape},
              {"down_shape", named.subject.down_shape},
              {"layer", time_json(row.layer)},
              {"stages", std::move(stages)},
              {"floor_us", row.floor_us},
              {"floor_kind", row.floor_is_bytes ? "bytes" : "flop"},
              {"ratio", row.ratio},
              {"tb_per_s", row.tb_per_s},
              {"tflop_per_s", row.tflop_per_s},
              {"experts_hit", row.experts_hit},
              {"weight_bytes_hit", row.weight_bytes},
              {"workspace_bytes", row.workspace_bytes},
              {"output_hash", fmt::format("{:016x}", row.output_hash)},
              {"weight_sets", row.weight_sets},
              {"calls_per_graph", row.calls},
              {"kernels", row.kernels},
              {"clocks", clocks_json(row.clocks)}};
}

Json ab_json(const NamedCase& base, const std::string& a_words, const std::string& b_words, const AbResult& result) {
  const auto side = [](const std::string& words, const BenchmarkRow& row) {
    return Json{{"words", words},
                {"layer", time_json(row.layer)},
                {"ratio", row.ratio},
                {"workspace_bytes", row.workspace_bytes},
                {"output_hash", fmt::format("{:016x}", row.output_hash)},
                {"kernels", row.kernels}};
  };
  return Json{{"problem", base.problem},
              {"shape", base.shape},
              {"tokens", base.subject.caps.max_tokens},
              {"a", side(a_words, result.a)},
              {"b", side(b_words, result.b)},
              {"difference", result.difference},
              {"low", result.low},
              {"high", result.high},
              {"verdict", result.verdict()},
              {"clocks", clocks_json(result.a.clocks)}};
}

Json variants_json(const NamedCase& named, const std::vector<VariantRow>& rows) {
  Json list = Json::array();
  for (const VariantRow& row : rows)
    list.push_back({{"stage", row.stage},
                    {"shape", row.shape},
                    {"kernel", row.kernel},
                    {"time", time_json(row.time)},
                    {"output_hash", fmt::format("{:016x}", row.output_hash)},
                    {"chosen", row.chosen},
                    {"best", row.best}});
  return Json{{"problem", named.problem},
              {"shape", named.shape},
              {"tokens", named.subject.caps.max_tokens},
              {"variants", std::move(list)}};
}

std::string row_line(const NamedCase& named, const BenchmarkRow& row) {
  std::string text = fmt::format("{}: {:.1f} us", named.problem, row.layer.median_us);
  if (row.slices > 1) text += fmt::format(" in {} slices of {}", row.slices, named.subject.capacity);
  if (!std::isnan(row.ratio)) text += fmt::format(", {:.2f}x the floor", row.ratio);
  return text + fmt::format(", {:.2f} TB/s", row.tb_per_s);
}

std::string rows_text(const std::vector<NamedCase>& cases, const std::vector<BenchmarkRow>& rows) {
  std::string text;
  for (std::size_t first = 0; first < rows.size();) {
    // Rows that differ in tokens and capacity alone share a table.
    const auto title = [&](std::size_t i) {
      const std::string& problem = cases[i].problem;
      return fmt::format("{}{}{}, {} routing", cases[i].shape, cases[i].shape.empty() ? "" : ": ",
                         problem.substr(problem.find(' ') + 1), routing_name(cases[i].subject.routing));
    };
    Table table({">tokens", ">capacity", ">layer us", ">from", ">to", ">routing", ">gate_up", ">down", ">combine",
                 ">floor us", ">ratio", ">TB/s", ">TFLOP/s", ">experts", ">workspace", "output", ">MHz"});
    std::size_t i = first;
    for (; i < rows.size() && title(i) == title(first); ++i) {
      const BenchmarkRow& row = rows[i];
      const std::int64_t tokens = cases[i].subject.caps.max_tokens, capacity = cases[i].subject.capacity;
      table.add({format_count(tokens), format_count(capacity > 0 ? capacity : tokens), number(row.layer.median_us, 1),
                 number(row.layer.low_us, 1), number(row.layer.high_us, 1), stage_us(row, "routing"),
                 stage_us(row, "gate_up"), stage_us(row, "down"), stage_us(row, "combine"),
                 number(row.floor_us, 1) + (row.floor_is_bytes ? " B" : " F"), number(row.ratio, 2),
                 number(row.tb_per_s, 2), number(row.tflop_per_s, 0), number(row.experts_hit, 1),
                 format_bytes(row.workspace_bytes), fmt::format("{:016x}", row.output_hash), clock_text(row.clocks)});
    }
    text += title(first) + "\n" + table.text();
    first = i;
  }
  return text;
}

std::string ab_line(const NamedCase& base, const AbResult& result) {
  return fmt::format("{}: a {:.1f} us, b {:.1f} us: {} [{}, {}]: {}", base.problem, result.a.layer.median_us,
                     result.b.layer.median_us, percent(result.difference), percent(result.low), percent(result.high),
                     result.verdict());
}

std::string variants_text(const NamedCase& named, const std::vector<VariantRow>& rows) {
  Table table({"step", "shape", ">us", ">from", ">to", "", "output", "kernel"});
  for (const VariantRow& row : rows)
    table.add({row.stage, row.shape, number(row.time.median_us, 2), number(row.time.low_us, 2),
               number(row.time.high_us, 2), fmt::format("{}{}", row.best ? "best " : "", row.chosen ? "chosen" : ""),
               fmt::format("{:016x}", row.output_hash), row.kernel});
  return named.problem + "\n" + table.text();
}

}  // namespace fourfold::cli
