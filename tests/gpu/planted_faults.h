// Faults planted into the kernels' text or into a plan, for tests that must see them. Nothing of the product can reach
// this: the text is patched before it is compiled, in the test program's memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/embedded_sources.h"
#include "fourfold/plan.h"

namespace fourfold::gpu_test {

struct PlantedFault {
  std::string name;    ///< "turn_order"
  std::string what;    ///< in words
  std::string path;    ///< of the file below kernels/; empty for a fault in the plan
  std::string anchor;  ///< stands in the file exactly once
  std::string replacement;
};
/// A missing mask, an unordered reduction and a short buffer, in more than one place. Pure.
const std::vector<PlantedFault>& planted_faults();
/// Throws usage with the names there are. Pure.
const PlantedFault& planted_fault(std::string_view name);

/// The kernels' text with one fault in it.
class PatchedSources {
 public:
  /// Throws internal when the anchor does not stand in its file exactly once.
  explicit PatchedSources(const PlantedFault& fault);
  PatchedSources(const PatchedSources&) = delete;
  PatchedSources& operator=(const PatchedSources&) = delete;
  const cuda::SourceTree& tree() const { return tree_; }

 private:
  std::string text_;
  cuda::SourceTree tree_;
};

/// The same plan with a workspace one alignment unit shorter than its ledger. Throws internal when it has none.
Plan with_short_workspace(const Plan& plan);

}  // namespace fourfold::gpu_test
