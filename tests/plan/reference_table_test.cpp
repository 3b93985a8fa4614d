// Other systems' bills against an independent script (tests/plan/reference_bytes.py) for shapes that nobody published.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fourfold/reference.h"

namespace fourfold {
namespace {

struct Row {
  std::string request, problem, multiprocessors, total_bytes, other_name, other_bytes;
};

std::vector<Row> table() {
  std::ifstream file(FOURFOLD_SOURCE_DIR "/tests/data/reference_bytes.csv");
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "request,problem,multiprocessors,total_bytes,other_name,other_bytes");
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    Row row;
    for (std::string* field :
         {&row.request, &row.problem, &row.multiprocessors, &row.total_bytes, &row.other_name, &row.other_bytes})
      std::getline(fields, *field, ',');
    rows.push_back(row);
  }
  return rows;
}

std::uint64_t named(const ReferenceBill& bill, const std::string& name) {
  for (const auto& [key, bytes] : bill.totals)
    if (key == name) return bytes;
  ADD_FAILURE() << bill.system << " has no " << name;
  return 0;
}

TEST(ReferenceTable, EveryShapeOfTheIndependentScriptAgrees) {
  std::map<std::string, std::set<std::string>> shapes;
  for (const Row& row : table()) {
    Device device = device_preset("rtx-pro-6000");
    device.multiprocessors = std::stoi(row.multiprocessors);
    const ReferenceBill bill = reference_bill(row.request, parse_problem(row.problem).caps, device);
    const std::string what = row.request + " for " + row.problem + " at " + row.multiprocessors;
    ASSERT_EQ(bill.refused, "") << what;
    EXPECT_EQ(std::to_string(bill.total_bytes), row.total_bytes) << what;
    EXPECT_EQ(std::to_string(named(bill, row.other_name)), row.other_bytes) << what;
    shapes[row.request.substr(0, row.request.find(':'))].insert(row.problem);
  }
  EXPECT_GE(shapes["b12x"].size(), 50u);
  EXPECT_GE(shapes["b12x-trellis"].size(), 30u);
  EXPECT_GE(shapes["flashinfer"].size(), 25u);
  EXPECT_GE(shapes["marlin"].size(), 30u);
}

// The table is the script's and was not edited by hand.
TEST(ReferenceTable, IsWhatTheScriptWrites) {
  FILE* pipe = popen("python3 " FOURFOLD_SOURCE_DIR "/tests/plan/reference_bytes.py 2>/dev/null", "r");
  ASSERT_NE(pipe, nullptr);
  std::string written;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) written.append(buffer, count);
  if (pclose(pipe) != 0) GTEST_SKIP() << "no python3 here";
  std::ifstream file(FOURFOLD_SOURCE_DIR "/tests/data/reference_bytes.csv");
  std::ostringstream checked_in;
  checked_in << file.rdbuf();
  EXPECT_EQ(written, checked_in.str());
}

// The parts and what pads them are the whole: nothing is counted that is not listed.
TEST(ReferenceTable, SegmentsAddUpToTheTotal) {
  for (const Row& row : table()) {
    Device device = device_preset("rtx-pro-6000");
    device.multiprocessors = std::stoi(row.multiprocessors);
    const ReferenceBill bill = reference_bill(row.request, parse_problem(row.problem).caps, device);
    std::uint64_t sum = 0;
    for (const ReferenceSegment& segment : bill.segments) sum += segment.bytes;
    EXPECT_GE(bill.total_bytes, sum) << row.request;
    EXPECT_LE(bill.total_bytes - sum, 16 * bill.segments.size()) << row.request;
    EXPECT_GE(bill.segments.size(), 2u);
  }
}

}  // namespace
}  // namespace fourfold
