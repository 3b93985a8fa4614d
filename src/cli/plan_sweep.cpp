// What capacities cost and buy: `plan --sweep`.
#include "plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "capacity_bill.h"
#include "fourfold/error.h"
#include "json_file.h"
#include "plan_fit.h"

namespace fourfold::cli {
namespace {

Error usage(std::string text) { return Error(ErrorCode::usage, std::move(text)); }

/// What does not depend on who reserves.
struct SweepRow {
  std::int64_t capacity = 0;
  std::int64_t slices = 0;
  double extra_weight_bytes = 0;  ///< of one chunk, all layers, against a chunk in one piece
  std::optional<double> measured_ms;
};

struct Sweep {
  std::int64_t chunk = 0;
  std::vector<SweepRow> rows;  ///< capacities as asked for
};

/// What one biller reserves at each capacity of a sweep; empty where it cannot be planned.
struct Reserved {
  std::vector<std::optional<std::uint64_t>> bytes;
  std::uint64_t largest = 0;
};

/// Bytes of experts that a slice of `tokens` reads, expected with uniform routing: an expert is left out by a token
/// with probability 1 - top_k / experts.
double slice_bytes(const Caps& caps, double weight_bytes, std::int64_t tokens) {
  const double experts = static_cast<double>(caps.id_count());
  const double missed = std::max(0.0, 1.0 - static_cast<double>(caps.top_k) / experts);
  return weight_bytes * (1 - std::pow(missed, static_cast<double>(tokens)));
}

double chunk_bytes(const Caps& caps, double weight_bytes, std::int64_t chunk, std::int64_t capacity) {
  const std::int64_t whole = chunk / capacity, rest = chunk % capacity;
  return static_cast<double>(whole) * slice_bytes(caps, weight_bytes, capacity) +
         (rest > 0 ? slice_bytes(caps, weight_bytes, rest) : 0);
}

std::vector<std::int64_t> capacities_of(const std::string& text) {
  constexpr std::string_view kKey = "capacity=";
  if (!text.starts_with(kKey)) throw usage(fmt::format("--sweep '{}': write capacity=512,1024,1536", text));
  std::vector<std::int64_t> capacities;
  for (std::size_t begin = kKey.size(); begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t capacity = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, capacity);
    if (error != std::errc() || stop != text.data() + end || capacity < 1 || capacity > kMaxCapacity)
      throw usage(fmt::format("--sweep '{}': '{}' is no capacity from 1 to {}", text, text.substr(begin, end - begin),
                              kMaxCapacity));
    capacities.push_back(capacity);
    begin = end + 1;
  }
  return capacities;
}

Json read_bench(const std::string& path) {
  Json json = read_json_file(path, "--bench " + path);
  if (!json.is_object() || !json.contains("rows") || !json["rows"].is_array())
    throw Error(ErrorCode::bad_input,
                fmt::format("--bench {}: no JSON object with a list 'rows'; write it with bench moe --json", path));
  return json;
}

/// Whether a row of a suite is about this layer; rows that do not say are.
bool about(const Json& row, Caps caps) {
  if (!row.contains("problem") || !row["problem"].is_string()) return true;
  try {
    Caps measured_caps = parse_problem(row["problem"].get<std::string>()).caps;
    measured_caps.max_tokens = caps.max_tokens = 0;
    return measured_caps == caps;
  } catch (const Error&) {
    return false;  // of a program that knows other words
  }
}

/// The median of a row in milliseconds: bench moe's `layer.median_us` on a GPU, `ms_median` on a CPU.
std::optional<double> median_ms(const Json& row) {
  constexpr double kMicroseconds = 1000;
  if (row.contains("layer") && row["layer"].is_object() && row["layer"].contains("median_us") &&
      row["layer"]["median_us"].is_number())
    return row["layer"]["median_us"].get<double>() / kMicroseconds;
  if (row.contains("ms_median") && row["ms_median"].is_number()) return row["ms_median"].get<double>();
  return std::nullopt;
}

/// Milliseconds by capacity, of `chunk` tokens. Rows say their capacity themselves or share the file's.
std::map<std::int64_t, double> measured(const std::vector<std::string>& files, const Caps& caps, std::int64_t chunk) {
  std::map<std::int64_t, double> found;
  for (const std::string& path : files) {
    const Json json = read_bench(path);
    std::size_t rows_with_capacity = 0;
    for (const Json& row : json["rows"]) {
      if (!row.is_object()) continue;
      const Json& holder = row.contains("capacity") ? row : json;
      if (!holder.contains("capacity") || !holder["capacity"].is_number_integer()) continue;
      ++rows_with_capacity;
      const std::optional<double> median = median_ms(row);
      if (median && row.contains("tokens") && row["tokens"] == chunk && about(row, caps))
        found[holder["capacity"].get<std::int64_t>()] = *median;
    }
    if (rows_with_capacity == 0)
      throw Error(ErrorCode::bad_input,
                  fmt::format("--bench {}: no row has a 'capacity'; measure with bench moe --capacity N --json", path));
  }
  return found;
}

Sweep make_sweep(const PlanReport& report, const SweepArguments& arguments) {
  const PlanRequest& request = report.request;
  Sweep sweep;
  const std::vector<std::int64_t> capacities = capacities_of(arguments.sweep);
  sweep.chunk = arguments.chunk > 0 ? arguments.chunk : *std::max_element(capacities.begin(), capacities.end());
  const std::map<std::int64_t, double> times = measured(arguments.bench, request.ranks.front().caps, sweep.chunk);
  const Caps& caps = request.ranks.front().caps;
  const auto layer = static_cast<double>(layer_expert_bytes(caps)) * static_cast<double>(request.layers);
  for (const std::int64_t capacity : capacities) {
    SweepRow row;
    row.capacity = capacity;
    if (report.refused.empty()) workspace_at(request, capacity);  // one that cannot be planned says why
    row.slices = sweep.chunk / capacity + (sweep.chunk % capacity != 0);
    row.extra_weight_bytes =
        chunk_bytes(caps, layer, sweep.chunk, capacity) - chunk_bytes(caps, layer, sweep.chunk, sweep.chunk);
    if (const auto at = times.find(capacity); at != times.end()) row.measured_ms = at->second;
    sweep.rows.push_back(row);
  }
  return sweep;
}

Reserved reserved(const Biller& biller, const Sweep& sweep) {
  Reserved found;
  for (const SweepRow& row : sweep.rows) {
    found.bytes.push_back(biller.bytes(row.capacity));
    found.largest = std::max(found.largest, found.bytes.back().value_or(0));
  }
  return found;
}

std::string sweep_table(const PlanRequest& request, const Sweep& sweep, const Biller& biller) {
  if (!biller.refused.empty()) return fmt::format("  refused: {}\n", biller.refused);
  const Reserved found = reserved(biller, sweep);
  Table table({">capacity", biller.ours ? ">workspace" : ">reserved", ">", ">KV tokens gained", ">slices a chunk",
               ">more weights read", ">measured ms"});
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    std::vector<std::string> cells{format_count(row.capacity), "-", "cannot be planned", "-"};
    if (const auto bytes = found.bytes[i])
      cells = {format_count(row.capacity), format_count(static_cast<std::int64_t>(*bytes)), format_bytes(*bytes),
               request.kv.known() ? format_count(request.kv.tokens(found.largest - *bytes))
                                  : format_bytes(found.largest - *bytes)};
    cells.push_back(format_count(row.slices));
    cells.push_back(format_bytes(static_cast<std::uint64_t>(std::max(0.0, row.extra_weight_bytes))));
    cells.push_back(biller.ours && row.measured_ms ? fmt::format("{:.3f}", *row.measured_ms) : "-");
    table.add(std::move(cells));
  }
  return table.text();
}

/// The keys of one biller at row `i`.
Json reserved_json(const PlanRequest& request, const char* key, const Reserved& found, std::size_t i) {
  const auto bytes = found.bytes[i];
  Json json{{key, nullptr}, {"bytes_gained", nullptr}, {"kv_tokens_gained", nullptr}};
  if (!bytes) return json;
  json[key] = *bytes;
  json["bytes_gained"] = found.largest - *bytes;
  if (request.kv.known()) json["kv_tokens_gained"] = request.kv.tokens(found.largest - *bytes);
  return json;
}

Json sweep_json(const PlanReport& report, const SweepArguments& arguments) {
  const PlanRequest& request = report.request;
  const Sweep sweep = make_sweep(report, arguments);
  Json rows = Json::array(), systems = Json::object();
  for (const SweepRow& row : sweep.rows)
    rows.push_back({{"capacity", row.capacity},
                    {"workspace_bytes", nullptr},
                    {"bytes_gained", nullptr},
                    {"kv_tokens_gained", nullptr},
                    {"slices", row.slices},
                    {"extra_weight_bytes", row.extra_weight_bytes},
                    {"measured_ms", row.measured_ms ? Json(*row.measured_ms) : Json(nullptr)}});
  for (const Biller& biller : billers(report)) {
    const Reserved found = reserved(biller, sweep);
    Json list = Json::array();
    for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
      Json row = reserved_json(request, biller.ours ? "workspace_bytes" : "total_bytes", found, i);
      if (biller.ours)
        rows[i].update(row);
      else {
        row["capacity"] = sweep.rows[i].capacity;
        list.push_back(std::move(row));
      }
    }
    if (!biller.ours)
      systems[biller.system] = {{"refused", biller.refused.empty() ? Json(nullptr) : Json(biller.refused)},
                                {"rows", std::move(list)}};
  }
  return {{"chunk_tokens", sweep.chunk}, {"rows", std::move(rows)}, {"reference", std::move(systems)}};
}

}  // namespace

void add_sweep_json(const PlanReport& report, const SweepArguments& arguments, Json& json) {
  if (!arguments.sweep.empty()) json["sweep"] = sweep_json(report, arguments);
  if (arguments.asks_fit()) json["fit"] = fit_json(report, arguments.fit, arguments.fit_tokens);
}

std::string sweep_text(const PlanReport& report, const SweepArguments& arguments) {
  std::string text;
  if (!arguments.sweep.empty()) {
    const PlanRequest& request = report.request;
    const Sweep sweep = make_sweep(report, arguments);
    for (const Biller& biller : billers(report))
      text +=
          fmt::format("\n{} for chunks of {} tokens\n",
                      heading(biller.ours ? "capacities" : biller.system + ", capacities"), format_count(sweep.chunk)) +
          sweep_table(request, sweep, biller);
    text += fmt::format(
        "  gained: against the largest {} above; more weights read: by a chunk's slices, {} layer{}, routing "
        "uniform\n",
        report.refused.empty() ? "arena" : "reservation", request.layers, request.layers == 1 ? "" : "s");
  }
  if (arguments.asks_fit()) text += fit_text(report, arguments.fit, arguments.fit_tokens);
  return text;
}

}  // namespace fourfold::cli
