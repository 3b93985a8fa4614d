// The faults, and how they get into a source tree and a plan.
#include "gpu/planted_faults.h"

#include <fmt/format.h>

#include "core/check.h"
#include "plan/arena.h"
#include "plan/plan_data.h"

namespace fourfold::gpu_test {
namespace {

std::string patched_text(const PlantedFault& fault) {
  const std::string_view text = cuda::SourceTree::embedded().text(fault.path);
  const std::size_t at = text.find(fault.anchor);
  check(at != std::string_view::npos && text.find(fault.anchor, at + 1) == std::string_view::npos, ErrorCode::internal,
        "planted fault {}: its anchor does not stand in {} exactly once: {}", fault.name, fault.path, fault.anchor);
  std::string patched(text);
  return patched.replace(at, fault.anchor.size(), fault.replacement);
}

cuda::SourceTree tree_with(const PlantedFault& fault, std::string_view text) {
  std::vector<cuda::SourceFile> files(cuda::embedded_files().begin(), cuda::embedded_files().end());
  for (cuda::SourceFile& file : files)
    if (file.path == fault.path) file.text = text;
  return cuda::SourceTree(files);
}

}  // namespace

const std::vector<PlantedFault>& planted_faults() {
  static const std::vector<PlantedFault> faults = {
      {"tail_mask", "positions behind the logical depth are not zero-filled", "device/warp_stream.cuh",
       "const bool inside = kUnitDepth * block_ + 8 * static_cast<Int32>(lane % 8) < work.depth();",
       "const bool inside = true;"},
      {"token_bound", "columns behind a tile's tokens are stored too", "device/gate_up_body.cuh",
       "if (row_tile >= p.gate_up.row_tiles || column >= item.tokens.count) return;",
       "if (row_tile >= p.gate_up.row_tiles) return;"},
      {"turn_order", "token tiles add to the sums in shared memory without waiting for their turn",
       "device/down_body.cuh", "  turns.wait();\n", ""},
      {"combine_order", "the sum over a token's slots begins anywhere", "moe/combine_rows.cu",
       "for (Int32 i = 0; i < live; ++i)\n        sum =",
       "for (Int32 n = 0, i = static_cast<Int32>(clock64() % max(live, 1)); n < live; ++n, i = (i + 1) % live)\n"
       "        sum ="},
      {"short_buffer", "the workspace is one unit of 256 bytes shorter than the plan's ledger", "", "", ""},
  };
  return faults;
}

const PlantedFault& planted_fault(std::string_view name) {
  std::string names;
  for (const PlantedFault& fault : planted_faults()) {
    if (fault.name == name) return fault;
    names += (names.empty() ? "" : ", ") + fault.name;
  }
  fail(ErrorCode::usage, "--plant {}: there is no such fault; there are {}", name, names);
}

PatchedSources::PatchedSources(const PlantedFault& fault)
    : text_(patched_text(fault)), tree_(tree_with(fault, text_)) {}

Plan with_short_workspace(const Plan& plan) {
  check(plan.workspace_bytes() >= kSegmentAlignment, ErrorCode::internal, "this plan has no workspace to shorten");
  auto data = std::make_shared<PlanData>(*plan.data());
  data->workspace_bytes -= kSegmentAlignment;
  return Plan(data);
}

}  // namespace fourfold::gpu_test
