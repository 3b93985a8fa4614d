// Results of bench moe on a GPU, in JSON and in words.
#pragma once

#include <string>
#include <vector>

#include "bench_cases.h"
#include "fourfold/benchmark.h"
#include "output.h"

namespace fourfold::cli {

/// The commit that this program was built at, and whether its tree had changes then (true when it is not known).
std::string build_commit();
bool build_is_dirty();

Json row_json(const NamedCase& named, const BenchmarkRow& row);
Json ab_json(const NamedCase& base, const std::string& a_words, const std::string& b_words, const AbResult& result);
Json variants_json(const NamedCase& named, const std::vector<VariantRow>& rows);

/// One line for a log: what, how long, how far above the floor.
std::string row_line(const NamedCase& named, const BenchmarkRow& row);
std::string rows_text(const std::vector<NamedCase>& cases, const std::vector<BenchmarkRow>& rows);
std::string ab_line(const NamedCase& base, const AbResult& result);
std::string variants_text(const NamedCase& named, const std::vector<VariantRow>& rows);

}  // namespace fourfold::cli
