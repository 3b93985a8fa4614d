// Reads an old report, matches rows, judges differences against their noise.
#include "bench_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>

#include "fourfold/error.h"

namespace fourfold::cli {
namespace {

std::string key_of(const Json& row) {
  return fmt::format("{} | {} | {} | {} | {}", row.at("problem").get<std::string>(),
                     row.at("routing").get<std::string>(), row.at("capacity").get<std::int64_t>(),
                     row.at("gate_up_shape").get<std::string>(), row.at("down_shape").get<std::string>());
}

struct Time {
  double median = 0, half_width = 0;
};

Time time_of(const Json& row) {
  const Json& layer = row.at("layer");
  return {layer.at("median_us").get<double>(),
          (layer.at("high_us").get<double>() - layer.at("low_us").get<double>()) / 2};
}

const Json* find_row(const Json& report, const std::string& key) {
  for (const Json& row : report.at("rows"))
    if (key_of(row) == key) return &row;
  return nullptr;
}

}  // namespace

Json read_bench_report(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw Error(ErrorCode::bad_input, fmt::format("--compare {}: cannot be read; name a report", file));
  Json report = Json::parse(text.str(), nullptr, false);
  const auto damaged = [&](const std::string& what) {
    return Error(ErrorCode::bad_input,
                 fmt::format("--compare {}: {}; name what bench moe --device cuda:0 --json printed", file, what));
  };
  if (!report.is_object()) throw damaged("is no JSON object");
  if (report.value("kind", Json()) != "bench_moe") throw damaged("has no \"kind\": \"bench_moe\"");
  try {
    report.at("device").get<std::string>();
    for (const Json& row : report.at("rows")) {
      key_of(row);
      if (!(time_of(row).median > 0)) throw damaged("has a row without a time");
    }
  } catch (const Json::exception& error) {
    throw damaged(fmt::format("is no report of a GPU ({})", error.what()));
  }
  return report;
}

ReportComparison compare_reports(const Json& old_report, const Json& new_report, double least_noise) {
  const auto old_device = old_report.at("device").get<std::string>();
  const auto new_device = new_report.at("device").get<std::string>();
  if (old_device != new_device)
    throw Error(ErrorCode::usage, fmt::format("--compare: the report is of \"{}\", this device is \"{}\"; times of two "
                                              "devices do not compare",
                                              old_device, new_device));
  ReportComparison result;
  Table table({"problem", "routing", ">capacity", ">old us", ">new us", ">difference", ">noise", "verdict"});
  for (const Json& row : new_report.at("rows")) {
    const Json* const old_row = find_row(old_report, key_of(row));
    if (old_row == nullptr) continue;
    const Time old_time = time_of(*old_row), new_time = time_of(row);
    const double difference = (new_time.median - old_time.median) / old_time.median;
    const double noise = std::max(least_noise, std::hypot(old_time.half_width, new_time.half_width) / old_time.median);
    const char* verdict = difference > noise ? "slower" : difference < -noise ? "faster" : "no difference shown";
    ++(difference > noise ? result.slower : difference < -noise ? result.faster : result.same);
    result.rows.push_back({{"problem", row.at("problem")},
                           {"routing", row.at("routing")},
                           {"capacity", row.at("capacity")},
                           {"old_us", old_time.median},
                           {"new_us", new_time.median},
                           {"difference", difference},
                           {"noise", noise},
                           {"verdict", verdict}});
    table.add({row.at("problem").get<std::string>(), row.at("routing").get<std::string>(),
               std::to_string(row.at("capacity").get<std::int64_t>()), fmt::format("{:.1f}", old_time.median),
               fmt::format("{:.1f}", new_time.median), fmt::format("{:+.1f} %", 100 * difference),
               fmt::format("{:.1f} %", 100 * noise), verdict});
  }
  if (result.rows.empty())
    throw Error(ErrorCode::bad_input,
                "--compare: the report has no row with a problem, routing and capacity of this run; measure the "
                "problems that it has");
  result.text = table.text() + fmt::format("{} slower, {} faster, {} without a difference\n", result.slower,
                                           result.faster, result.same);
  return result;
}

}  // namespace fourfold::cli
