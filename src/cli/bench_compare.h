// bench moe --compare: rows of this run against those of a report.
#pragma once

#include <string>

#include "output.h"

namespace fourfold::cli {

/// A report of bench moe on a GPU. Throws bad_input when the file cannot be read or is none.
Json read_bench_report(const std::string& file);

struct ReportComparison {
  Json rows = Json::array();  ///< {problem, routing, capacity, old_us, new_us, difference, noise, verdict}
  int slower = 0, faster = 0, same = 0;
  std::string text;  ///< a table
};
/// Compares rows with equal problem, routing and capacity. A difference shows when it is larger than the noise: both
/// medians' confidence intervals together (half widths in quadrature), and at least `least_noise` of the old time.
/// Throws usage when the reports are of different devices, bad_input when they have no row in common.
ReportComparison compare_reports(const Json& old_report, const Json& new_report, double least_noise);

}  // namespace fourfold::cli
