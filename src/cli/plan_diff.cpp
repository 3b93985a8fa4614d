// Two plans that `plan --json` wrote, compared: `plan diff`.
#include "plan_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "fourfold/error.h"
#include "json_file.h"
#include "output.h"

namespace fourfold::cli {
namespace {

constexpr int kGrew = static_cast<int>(ErrorCode::regression);

struct Number {
  std::string name;
  std::int64_t before = 0, after = 0;
  std::int64_t change() const noexcept { return after - before; }
};

Json read_plan(const std::string& path) {
  Json json = read_json_file(path, path);
  const bool plan = json.is_object() && json.contains("workspace_bytes") &&
                    json["workspace_bytes"].is_number_integer() && json.contains("weight_bytes") &&
                    json["weight_bytes"].is_number_integer() && json.contains("segments") &&
                    json["segments"].is_array();
  if (!plan)
    throw Error(ErrorCode::bad_input,
                fmt::format("{}: no plan; write one with fourfold plan PROBLEM --json > {}", path, path));
  return json;
}

std::map<std::string, std::int64_t> segments_of(const Json& plan, const std::string& path) {
  std::map<std::string, std::int64_t> segments;
  for (const Json& segment : plan["segments"]) {
    if (!segment.is_object() || !segment.contains("name") || !segment["name"].is_string() ||
        !segment.contains("bytes") || !segment["bytes"].is_number_integer())
      throw Error(ErrorCode::bad_input, fmt::format("{}: a segment has no name or no bytes", path));
    segments[segment["name"].get<std::string>()] += segment["bytes"].get<std::int64_t>();
  }
  return segments;
}

std::set<std::string> kernels_of(const Json& plan) {
  std::set<std::string> kernels;
  if (!plan.contains("bands") || !plan["bands"].is_array()) return kernels;
  for (const Json& band : plan["bands"])
    if (band.is_object() && band.contains("kernels") && band["kernels"].is_array())
      for (const Json& kernel : band["kernels"])
        if (kernel.is_string()) kernels.insert(kernel.get<std::string>());
  return kernels;
}

std::vector<std::string> only_in(const std::set<std::string>& these, const std::set<std::string>& others) {
  std::vector<std::string> only;
  std::set_difference(these.begin(), these.end(), others.begin(), others.end(), std::back_inserter(only));
  return only;
}

std::string text_of(const Json& plan, const char* key) {
  return plan.contains(key) && plan[key].is_string() ? plan[key].get<std::string>() : "unknown";
}

Json number_json(const Number& number) {
  return {{"before", number.before}, {"after", number.after}, {"change", number.change()}};
}

std::string change_text(std::int64_t change) {
  return change == 0 ? "0" : (change > 0 ? "+" : "") + format_count(change);
}

struct Difference {
  std::string problem_before, problem_after;
  std::vector<Number> totals, segments;
  std::vector<std::string> added, removed;
  bool bands_changed = false;
  bool grew() const {
    return std::any_of(totals.begin(), totals.end(), [](const Number& total) { return total.change() > 0; });
  }
  bool any() const {
    const auto changed = [](const Number& number) { return number.change() != 0; };
    return std::any_of(totals.begin(), totals.end(), changed) ||
           std::any_of(segments.begin(), segments.end(), changed) || !added.empty() || !removed.empty() ||
           bands_changed || problem_before != problem_after;
  }
};

Difference compare(const Json& before, const std::string& before_path, const Json& after,
                   const std::string& after_path) {
  Difference difference;
  difference.problem_before = text_of(before, "problem");
  difference.problem_after = text_of(after, "problem");
  for (const char* key : {"workspace_bytes", "weight_bytes"})
    difference.totals.push_back({key, before[key].get<std::int64_t>(), after[key].get<std::int64_t>()});
  std::map<std::string, std::int64_t> old_segments = segments_of(before, before_path);
  for (const auto& [name, bytes] : segments_of(after, after_path)) {
    difference.segments.push_back({name, old_segments.contains(name) ? old_segments[name] : 0, bytes});
    old_segments.erase(name);
  }
  for (const auto& [name, bytes] : old_segments) difference.segments.push_back({name, bytes, 0});
  const std::set<std::string> old_kernels = kernels_of(before), new_kernels = kernels_of(after);
  difference.added = only_in(new_kernels, old_kernels);
  difference.removed = only_in(old_kernels, new_kernels);
  difference.bands_changed = before.value("bands", Json()) != after.value("bands", Json());
  return difference;
}

void print_difference_json(const Difference& difference) {
  Json segments = Json::array();
  for (const Number& segment : difference.segments) {
    Json entry = number_json(segment);
    entry["name"] = segment.name;
    segments.push_back(std::move(entry));
  }
  Json json{{"grew", difference.grew()},
            {"changed", difference.any()},
            {"problem", {{"before", difference.problem_before}, {"after", difference.problem_after}}}};
  for (const Number& total : difference.totals) json[total.name] = number_json(total);
  json["segments"] = std::move(segments);
  json["kernels"] = {{"added", difference.added}, {"removed", difference.removed}};
  json["bands_changed"] = difference.bands_changed;
  print_json(json);
}

std::string difference_text(const Difference& difference) {
  std::string text;
  if (difference.problem_before != difference.problem_after)
    text += fmt::format("problem: {}\n     now: {}\n", without_controls(difference.problem_before),
                        without_controls(difference.problem_after));
  Table table({"what", ">before", ">after", ">change"});
  for (const auto* numbers : {&difference.totals, &difference.segments})
    for (const Number& number : *numbers)
      if (number.change() != 0 || numbers == &difference.totals)
        table.add({number.name, format_count(number.before), format_count(number.after), change_text(number.change())});
  text += table.text();
  for (const std::string& kernel : difference.added) text += "  + " + without_controls(kernel) + "\n";
  for (const std::string& kernel : difference.removed) text += "  - " + without_controls(kernel) + "\n";
  if (difference.bands_changed) text += "  the bands differ\n";
  const std::string verdict = difference.grew() ? "grew" : difference.any() ? "changed, and did not grow" : "the same";
  return text + marked(verdict, !difference.grew()) + "\n";
}

}  // namespace

int diff_plans(const std::string& before, const std::string& after, bool json) {
  const Difference difference = compare(read_plan(before), before, read_plan(after), after);
  if (json)
    print_difference_json(difference);
  else
    write_stdout(difference_text(difference));
  return difference.grew() ? kGrew : 0;
}

}  // namespace fourfold::cli
