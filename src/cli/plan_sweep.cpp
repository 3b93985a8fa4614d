// What capacities cost and buy: `plan --sweep`, `--fit`, `--fit-tokens`.
#include "plan_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>

#include "byte_size.h"
#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

constexpr std::int64_t kMaxCapacity = (std::int64_t{1} << 31) - 1;

Error usage(std::string text) { return Error(ErrorCode::usage, std::move(text)); }

/// Ranks with different shares: what must be asked once.
std::vector<Caps> distinct_caps(const PlanRequest& request) {
  std::vector<Caps> distinct;
  for (const RankShare& rank : request.ranks)
    if (std::find(distinct.begin(), distinct.end(), rank.caps) == distinct.end()) distinct.push_back(rank.caps);
  return distinct;
}

struct SweepRow {
  std::int64_t capacity = 0;
  std::uint64_t workspace_bytes = 0;
  std::int64_t slices = 0;
  double extra_weight_bytes = 0;  ///< of one chunk, all layers, against a chunk in one piece
  std::optional<double> measured_ms;
};

struct Sweep {
  std::int64_t chunk = 0;
  std::vector<SweepRow> rows;  ///< capacities as asked for
  std::uint64_t largest_bytes = 0;
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
  std::ifstream file(path);
  Json json = file ? Json::parse(file, nullptr, false) : Json();
  if (!file.good() && json.is_null())
    throw Error(ErrorCode::bad_input, fmt::format("--bench {}: the file cannot be read", path));
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

Sweep make_sweep(const PlanRequest& request, const SweepArguments& arguments) {
  Sweep sweep;
  const std::vector<std::int64_t> capacities = capacities_of(arguments.sweep);
  sweep.chunk = arguments.chunk > 0 ? arguments.chunk : *std::max_element(capacities.begin(), capacities.end());
  const std::map<std::int64_t, double> times = measured(arguments.bench, request.ranks.front().caps, sweep.chunk);
  const Caps& caps = request.ranks.front().caps;
  const auto layer = static_cast<double>(layer_expert_bytes(caps)) * static_cast<double>(request.layers);
  for (const std::int64_t capacity : capacities) {
    SweepRow row;
    row.capacity = capacity;
    row.workspace_bytes = workspace_at(request, capacity);
    row.slices = sweep.chunk / capacity + (sweep.chunk % capacity != 0);
    row.extra_weight_bytes =
        chunk_bytes(caps, layer, sweep.chunk, capacity) - chunk_bytes(caps, layer, sweep.chunk, sweep.chunk);
    if (const auto at = times.find(capacity); at != times.end()) row.measured_ms = at->second;
    sweep.largest_bytes = std::max(sweep.largest_bytes, row.workspace_bytes);
    sweep.rows.push_back(row);
  }
  return sweep;
}

/// What a capacity leaves, beside its neighbours.
struct Fit {
  std::uint64_t budget_bytes = 0;
  std::string why;  ///< where the budget comes from
  std::int64_t capacity = 0;
  std::vector<std::int64_t> shown;  ///< the capacity and its neighbours
};

Fit make_fit(const PlanRequest& request, const SweepArguments& arguments) {
  Fit fit;
  if (!arguments.fit.empty() && arguments.fit_tokens)
    throw usage("--fit and --fit-tokens each give the arena's budget; leave one out");
  if (!arguments.fit.empty()) {
    fit.budget_bytes = static_cast<std::uint64_t>(byte_size("--fit", arguments.fit));
    fit.why = "as --fit says";
  } else {
    const std::int64_t tokens = *arguments.fit_tokens;
    if (!request.kv.known())
      throw usage("--fit-tokens needs the price of a token: --kv-bytes-per-token, --kv-record-bytes or --model");
    if (!request.pool) throw usage("--fit-tokens needs " + request.pool_text);
    const std::uint64_t cache = request.kv.bytes_of(tokens), pool = static_cast<std::uint64_t>(*request.pool);
    if (cache > pool)
      throw Error(ErrorCode::unsupported,
                  fmt::format("--fit-tokens {}: they need {} bytes and the pool has {} ({}), short by {}; at most {} "
                              "tokens fit, without any arena",
                              tokens, cache, pool, request.pool_text, cache - pool, request.kv.tokens(pool)));
    fit.budget_bytes = pool - cache;
    fit.why = fmt::format("pool {} ({}) less {} tokens of KV cache", format_bytes(pool), request.pool_text,
                          format_count(tokens));
  }
  fit.capacity = largest_capacity(request, fit.budget_bytes);
  if (fit.capacity < 1) {
    const std::uint64_t least = workspace_at(request, 1);
    throw Error(ErrorCode::unsupported,
                fmt::format("no capacity fits into {} bytes ({}): one token already needs {}, short by {}",
                            fit.budget_bytes, fit.why, least, least - std::min(least, fit.budget_bytes)));
  }
  for (const std::int64_t capacity : {fit.capacity - 1, fit.capacity, fit.capacity + 1})
    if (capacity >= 1 && capacity <= kMaxCapacity) fit.shown.push_back(capacity);
  return fit;
}

/// A neighbour above can be beyond what can be planned at all.
std::optional<std::uint64_t> workspace_if_any(const PlanRequest& request, std::int64_t tokens) {
  try {
    return workspace_at(request, tokens);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

std::string fit_text(const PlanRequest& request, const Fit& fit) {
  std::string text =
      fmt::format("\n{}: {} tokens fit into {} bytes ({})\n", heading("largest capacity"), format_count(fit.capacity),
                  format_count(static_cast<std::int64_t>(fit.budget_bytes)), fit.why);
  Table table({">capacity", ">workspace", ">", ">left", "fits"});
  for (const std::int64_t capacity : fit.shown) {
    const auto bytes = workspace_if_any(request, capacity);
    if (!bytes) {
      table.add({format_count(capacity), "-", "-", "-", "cannot be planned"});
      continue;
    }
    const bool fits = *bytes <= fit.budget_bytes;
    table.add({format_count(capacity), format_count(static_cast<std::int64_t>(*bytes)), format_bytes(*bytes),
               fits ? format_count(static_cast<std::int64_t>(fit.budget_bytes - *bytes))
                    : "-" + format_count(static_cast<std::int64_t>(*bytes - fit.budget_bytes)),
               fits ? "yes" : "no"});
  }
  return text + table.text();
}

Json fit_json(const PlanRequest& request, const Fit& fit) {
  Json neighbours = Json::array();
  for (const std::int64_t capacity : fit.shown) {
    const auto bytes = workspace_if_any(request, capacity);
    neighbours.push_back({{"capacity", capacity},
                          {"workspace_bytes", bytes ? Json(*bytes) : Json(nullptr)},
                          {"fits", bytes && *bytes <= fit.budget_bytes}});
  }
  return {{"budget_bytes", fit.budget_bytes},
          {"budget", fit.why},
          {"capacity", fit.capacity},
          {"neighbours", std::move(neighbours)}};
}

}  // namespace

std::uint64_t workspace_at(const PlanRequest& request, std::int64_t tokens) {
  std::uint64_t most = 0;
  for (Caps caps : distinct_caps(request)) {
    caps.max_tokens = tokens;
    most = std::max(most, required_workspace_bytes(caps, request.device));
  }
  return most;
}

std::int64_t largest_capacity(const PlanRequest& request, std::uint64_t bytes) {
  std::int64_t least = kMaxCapacity;
  for (const Caps& caps : distinct_caps(request))
    least = std::min(least, largest_max_tokens(caps, request.device, bytes, kMaxCapacity));
  return least;
}

void add_sweep_json(const PlanRequest& request, const SweepArguments& arguments, Json& json) {
  if (!arguments.sweep.empty()) {
    const Sweep sweep = make_sweep(request, arguments);
    Json rows = Json::array();
    for (const SweepRow& row : sweep.rows) {
      const std::uint64_t saved = sweep.largest_bytes - row.workspace_bytes;
      rows.push_back({{"capacity", row.capacity},
                      {"workspace_bytes", row.workspace_bytes},
                      {"bytes_gained", saved},
                      {"kv_tokens_gained", request.kv.known() ? Json(request.kv.tokens(saved)) : Json(nullptr)},
                      {"slices", row.slices},
                      {"extra_weight_bytes", row.extra_weight_bytes},
                      {"measured_ms", row.measured_ms ? Json(*row.measured_ms) : Json(nullptr)}});
    }
    json["sweep"] = {{"chunk_tokens", sweep.chunk}, {"rows", std::move(rows)}};
  }
  if (!arguments.fit.empty() || arguments.fit_tokens) json["fit"] = fit_json(request, make_fit(request, arguments));
}

std::string sweep_text(const PlanRequest& request, const SweepArguments& arguments) {
  std::string text;
  if (!arguments.sweep.empty()) {
    const Sweep sweep = make_sweep(request, arguments);
    text += fmt::format("\n{} for chunks of {} tokens\n", heading("capacities"), format_count(sweep.chunk));
    Table table(
        {">capacity", ">workspace", ">", ">KV tokens gained", ">slices a chunk", ">more weights read", ">measured ms"});
    for (const SweepRow& row : sweep.rows) {
      const std::uint64_t saved = sweep.largest_bytes - row.workspace_bytes;
      table.add({format_count(row.capacity), format_count(static_cast<std::int64_t>(row.workspace_bytes)),
                 format_bytes(row.workspace_bytes),
                 request.kv.known() ? format_count(request.kv.tokens(saved)) : format_bytes(saved),
                 format_count(row.slices),
                 format_bytes(static_cast<std::uint64_t>(std::max(0.0, row.extra_weight_bytes))),
                 row.measured_ms ? fmt::format("{:.3f}", *row.measured_ms) : "-"});
    }
    text += table.text();
    text += fmt::format(
        "  gained: against the largest arena above; more weights read: by a chunk's slices, {} layer{}, routing "
        "uniform\n",
        request.layers, request.layers == 1 ? "" : "s");
  }
  if (!arguments.fit.empty() || arguments.fit_tokens) text += fit_text(request, make_fit(request, arguments));
  return text;
}

}  // namespace fourfold::cli
