// From what a user asks of bench moe on a GPU to the cases that are measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fourfold/benchmark.h"

namespace fourfold::cli {

/// A case, and how reports name it.
struct NamedCase {
  std::string shape;    ///< of a suite: "GLM-5.2 TP4"; empty for a problem of the user's own
  std::string problem;  ///< canonical text of this one token count: what rows of two reports are matched by
  std::string arch;     ///< after '@'; empty when absent
  BenchmarkCase subject;
};

struct CaseOptions {
  std::vector<std::string> problems;  ///< with a suite: words that replace its own, at most one text
  std::string suite;                  ///< "decode", "prefill" or empty
  RoutingKind routing = RoutingKind::uniform;
  std::vector<std::int64_t> capacities;  ///< of the plan; empty: the token count
};

/// Names of suites. Pure.
const std::vector<std::string>& suite_names();

/// Every problem, token count and capacity, in the order given. Throws usage for no problem at all, for one that is not
/// in the grammar, and for a count or capacity below 1.
std::vector<NamedCase> cases_of(const CaseOptions& options);

/// The case with the words of one side of --ab: gate_up=, down=, routing=, capacity=, and words of a problem, which
/// replace those of their kind. Throws usage for a word that is none of these.
NamedCase with_words(const NamedCase& base, const std::string& words);

}  // namespace fourfold::cli
