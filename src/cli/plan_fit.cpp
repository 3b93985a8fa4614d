// The largest capacity that leaves what must be left: `plan --fit`, `--fit-tokens`.
#include "plan_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "byte_size.h"
#include "capacity_bill.h"
#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

Error usage(std::string text) { return Error(ErrorCode::usage, std::move(text)); }

struct Budget {
  std::uint64_t bytes = 0;
  std::string why;
};

Budget budget_of(const PlanRequest& request, const std::string& bytes, std::optional<std::int64_t> tokens) {
  if (!bytes.empty() && tokens) throw usage("--fit and --fit-tokens each give the arena's budget; leave one out");
  if (!bytes.empty()) return {static_cast<std::uint64_t>(byte_size("--fit", bytes)), "as --fit says"};
  if (!request.kv.known())
    throw usage("--fit-tokens needs the price of a token: --kv-bytes-per-token, --kv-record-bytes or --model");
  if (!request.pool) throw usage("--fit-tokens needs " + request.pool_text);
  const std::uint64_t cache = request.kv.bytes_of(*tokens), pool = static_cast<std::uint64_t>(*request.pool);
  if (cache > pool)
    throw Error(ErrorCode::unsupported,
                fmt::format("--fit-tokens {}: they need {} bytes and the pool has {} ({}), short by {}; at most {} "
                            "tokens fit, without any arena",
                            *tokens, cache, pool, request.pool_text, cache - pool, request.kv.tokens(pool)));
  return {pool - cache, fmt::format("pool {} ({}) less {} tokens of KV cache", format_bytes(pool), request.pool_text,
                                    format_count(*tokens))};
}

/// What a capacity leaves, beside its neighbours.
struct Fit {
  std::int64_t capacity = 0;        ///< 0: none fits
  std::vector<std::int64_t> shown;  ///< the capacity and its neighbours
};

Fit make_fit(const Biller& biller, const Budget& budget) {
  Fit fit;
  if (!biller.refused.empty()) return fit;
  fit.capacity = largest_capacity(biller, budget.bytes);
  if (fit.capacity < 1 && biller.ours) {
    const std::uint64_t least = biller.bytes(1).value_or(0);
    throw Error(ErrorCode::unsupported,
                fmt::format("no capacity fits into {} bytes ({}): one token already needs {}, short by {}",
                            budget.bytes, budget.why, least, least - std::min(least, budget.bytes)));
  }
  for (const std::int64_t capacity : {fit.capacity - 1, fit.capacity, fit.capacity + 1})
    if (capacity >= 1 && capacity <= kMaxCapacity) fit.shown.push_back(capacity);
  return fit;
}

std::string table_of(const PlanRequest& request, const Biller& biller, const Fit& fit, const Budget& budget) {
  Table table({">capacity", biller.ours ? ">workspace" : ">reserved", ">", ">left", ">KV tokens", "fits"});
  for (const std::int64_t capacity : fit.shown) {
    const auto bytes = biller.bytes(capacity);
    if (!bytes) {
      table.add({format_count(capacity), "-", "-", "-", "-", "cannot be planned"});
      continue;
    }
    const bool fits = *bytes <= budget.bytes;
    const std::uint64_t apart = fits ? budget.bytes - *bytes : *bytes - budget.bytes;
    const std::string sign = fits ? "" : "-";
    std::int64_t tokens = request.kv.tokens(apart);
    if (!fits && request.kv.known() && request.kv.bytes_of(tokens) < apart) ++tokens;  // a part of one is missing, too
    table.add({format_count(capacity), format_count(static_cast<std::int64_t>(*bytes)), format_bytes(*bytes),
               sign + format_count(static_cast<std::int64_t>(apart)),
               request.kv.known() ? sign + format_count(tokens) : "-", fits ? "yes" : "no"});
  }
  return table.text();
}

Json neighbours_json(const Biller& biller, const Fit& fit, const Budget& budget) {
  Json neighbours = Json::array();
  for (const std::int64_t capacity : fit.shown) {
    const auto bytes = biller.bytes(capacity);
    neighbours.push_back({{"capacity", capacity},
                          {biller.ours ? "workspace_bytes" : "total_bytes", bytes ? Json(*bytes) : Json(nullptr)},
                          {"fits", bytes && *bytes <= budget.bytes}});
  }
  return neighbours;
}

}  // namespace

Json fit_json(const PlanReport& report, const std::string& bytes, std::optional<std::int64_t> tokens) {
  const Budget budget = budget_of(report.request, bytes, tokens);
  Json json{{"budget_bytes", budget.bytes},
            {"budget", budget.why},
            {"capacity", nullptr},
            {"neighbours", Json::array()},
            {"reference", Json::object()}};
  for (const Biller& biller : billers(report)) {
    const Fit fit = make_fit(biller, budget);
    Json entry{{"capacity", fit.capacity > 0 ? Json(fit.capacity) : Json(nullptr)},
               {"neighbours", neighbours_json(biller, fit, budget)}};
    if (biller.ours) {
      json.update(entry);
    } else {
      entry["refused"] = biller.refused.empty() ? Json(nullptr) : Json(biller.refused);
      json["reference"][biller.system] = std::move(entry);
    }
  }
  return json;
}

std::string fit_text(const PlanReport& report, const std::string& bytes, std::optional<std::int64_t> tokens) {
  const Budget budget = budget_of(report.request, bytes, tokens);
  std::string text;
  for (const Biller& biller : billers(report)) {
    const Fit fit = make_fit(biller, budget);
    text += "\n" + heading(biller.ours ? "largest capacity" : biller.system + ", largest capacity") + ": ";
    if (!biller.refused.empty()) {
      text += "refused: " + biller.refused + "\n";
      continue;
    }
    text += fit.capacity > 0 ? fmt::format("{} tokens fit", format_count(fit.capacity)) : std::string("nothing fits");
    text += fmt::format(" into {} bytes ({})\n", format_count(static_cast<std::int64_t>(budget.bytes)), budget.why);
    text += table_of(report.request, biller, fit, budget);
  }
  return text;
}

}  // namespace fourfold::cli
